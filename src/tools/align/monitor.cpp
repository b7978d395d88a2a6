#include "npu_train/tools/align/monitor.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "npu_train/core/append_file.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/run_files.hpp"
#include "npu_train/io/event_writer.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "npu_train/tools/align/monitor_log.hpp"
#include "npu_train/trace/op_observer.hpp"
#include "npu_train/train/loop.hpp"
#include "tools/align/monitor_window.hpp"

namespace npu_train {

using detail::kMonitored, detail::MonitorWindow;

const ConfigTable<MonitorOptions>& MonitorOptions::config_table() {
  using T = MonitorOptions;
  static const auto table =
      ConfigTable<T>("monitor")
          .field("every", &T::every, "records the first window, and each whose number is a multiple of this", at_least(1))
          .field("what", &T::what, "kinds of tensors to record; empty: all", one_of({kMonitored.begin(), kMonitored.end()}))
          .field("where", &T::where, "names or parts of names, * matches anything; empty: all")
          .field("band", &T::band, "least factor by which the norm of a gradient must differ from its median to leave its band",
                 Bounds{.lo = 1, .hi = 1e30, .lo_open = true})
          .field("dir", &T::dir, "folder of monitor.csv; '': the run's folder; nothing is recorded if it has none")
          .synonym("list", "where")
          .synonym("targets", "where")
          .synonym("step_interval", "every")
          .synonym("output_dir", "dir");
  return table;
}

namespace {

namespace fs = std::filesystem;

// Returns the tag of a norm in TensorBoard, in the style of Composer's OptimizerMonitor: "l2_norm/grad/fc.weight".
std::string tag_of(const MonitorRow& row) {
  const char* kind = row.what == "gradients" ? "grad/" : row.what == "weights" ? "param/" : row.what == "activations" ? "activation/" : "";
  return "l2_norm/" + (kind + row.name);
}

// Writes monitor.csv and the TensorBoard events, on the main rank. The files are not essential: if one cannot be written, rows are lost,
// and a warning is logged.
class MonitorFiles {
 public:
  // `own`: no other run writes into the folder.
  MonitorFiles(const std::string& dir, bool own, bool tensorboard, double band)
      : dir_(dir), own_(own), tensorboard_(tensorboard), least_(band), watch_(band) {}

  // Prepares the files for window `attempt`. Removes the rows from that window on, which a killed or rolled-back run has left.
  void begin_at(int64_t attempt) {
    if (attempt > last_) return;
    guarded([&] { open(attempt); });
  }

  void write(const std::vector<MonitorRow>& rows) {
    if (rows.empty()) return;
    last_ = rows.front().attempt;
    std::string text;
    std::vector<std::pair<std::string, double>> tags;
    double square = 0;
    for (const auto& row : rows) {
      text += to_csv(row);
      tags.emplace_back(tag_of(row), row.norm);
      if (row.what == "gradients") square += row.norm * row.norm;
      if (auto exit = watch_.add(row); exit && !std::exchange(warned_, true))
        log_warning("monitor: ", to_text(*exit), "; npu_tool report shows this and later ones");
    }
    if (square > 0) tags.emplace_back("l2_norm/grad/global", std::sqrt(square));
    guarded([&] {
      if (csv_) csv_->write(text);
      if (events_) events_->add_scalars(tags, rows.front().step);
    });
  }

 private:
  template <class Fn>
  void guarded(Fn&& fn) {
    try {
      translated("monitor", fn);
    } catch (const Error& e) {
      warn_once(dir_ + " monitor", std::string(e.what()) + "; the training continues, and monitor.csv may be incomplete from here on");
    }
  }

  void open(int64_t attempt) {
    csv_.reset();
    events_.reset();
    watch_ = BandWatch(least_);
    fs::create_directories(dir_);
    const auto path = fs::path(dir_) / "monitor.csv";
    int64_t step = -1;
    if (fs::exists(path)) try {
        check(own_ || attempt > 0, ErrorKind::Checkpoint, "monitor", "is not of this run, which begins");
        cut_monitor(path, attempt, [&](const MonitorRow& row) {
          step = row.step;
          watch_.add(row);
        });
      } catch (const Error& e) {
        set_aside(path, e.what());
        check(!fs::exists(path), ErrorKind::Checkpoint, "monitor", path.string(), ": cannot be renamed; rows are not added to it");
      }
    own_ = true;
    last_ = attempt - 1;
    const bool is_new = !fs::exists(path);
    csv_.emplace(path.string());
    if (is_new) csv_->write(monitor_header());
    if (!tensorboard_) return;
    events_.emplace((fs::path(dir_) / "monitor").string());
    if (attempt > 0) events_->start_session(step + 1);
  }

  std::string dir_;
  bool own_, tensorboard_;
  double least_;
  BandWatch watch_;
  int64_t last_ = std::numeric_limits<int64_t>::max();  // the last window that has rows
  bool warned_ = false;
  std::optional<AppendFile> csv_;
  std::optional<EventWriter> events_;
};

// Observes the windows of a run. Rows are written one step late, when the loop reads the results of the step, so that the host does not
// wait for newer work of a device. With several ranks, the statistics of a recorded window are gathered at its end, which waits for the
// device.
class Monitor final : public StepObserver, public Callback {
 public:
  Monitor(MonitorOptions options, const RunView& run, bool own_folder)
      : options_(std::move(options)),
        loop_(*run.loop),
        strategy_(*run.strategy),
        optimizer_(*run.optimizer),
        has_slices_(run.strategy->shards() ? run.strategy->writes_slices() : run.strategy->ranks().is_main()),
        used_(options_.where.size()) {
    loop_.observers().add(this);
    if (strategy_.ranks().is_main()) files_.emplace(options_.dir, own_folder, run.config.output.logs_to("tensorboard"), options_.band);
  }

  void phase_begin(Phase phase, int64_t attempt, int /*micro_batch*/) override {
    if (phase != Phase::Forward && phase != Phase::Reduce) return;  // also Reduce, since a rank without a batch has no forward pass
    if (attempt != attempt_) begin(attempt);
    if (phase == Phase::Forward && open_ && wants("activations")) observe_operators();
  }

  void phase_end(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) override {
    if (!open_) return;
    if (phase == Phase::Forward) end_forward();
    if (phase == Phase::Unscale && wants("gradients") && has_slices_) add_gradients();
    if (phase == Phase::Optimizer) end_window();
  }

  void phase_error(Phase /*phase*/, int64_t /*attempt*/, int /*micro_batch*/, std::exception_ptr /*error*/) override {
    observer_.reset();
    open_.reset();
    attempt_ = -1;  // with trainer.on_oom=retry, the window is repeated
  }

  void on_epoch_start(TrainLoop& /*loop*/, int64_t /*epoch*/) override { observe_from_here(); }
  void on_epoch_resume(TrainLoop& /*loop*/, int64_t /*epoch*/) override { observe_from_here(); }  // also after a rollback

  void on_step_end(TrainLoop& /*loop*/, const StepReport& report) override {
    for (auto& window : ended_)
      if (window.attempt() == report.attempt) window.step_after = {report.global_step, !report.taken};
    write_before(report.attempt + 1);
    observe_next(report.attempt);
  }

  // Writes the remaining rows. This is not a collective call.
  void finish() {
    settle(std::numeric_limits<int64_t>::max());
    write_before(std::numeric_limits<int64_t>::max());
  }

 private:
  bool wants(const char* what) const {
    return options_.what.empty() || std::find(options_.what.begin(), options_.what.end(), what) != options_.what.end();
  }
  bool is_wanted(const std::string& name) {
    bool out = options_.where.empty();
    for (size_t i = 0; i < options_.where.size(); ++i)
      if (name_matches(name, options_.where[i])) out = used_[i] = true;
    return out;
  }

  bool is_due(int64_t attempt) const { return attempt == 0 || (attempt + 1) % options_.every == 0; }

  // Observes the loop only in windows that are recorded, because other windows may replay a graph of the device (trainer.cuda_graphs).
  // `reported`: the window of the last report. A report comes before or after the next window has run.
  void observe_next(int64_t reported) {
    const auto next = (observing_ ? std::max(attempt_, reported) : reported) + 1;
    observe_windows(is_due(next) || (!observing_ && is_due(next + 1)));
  }
  void observe_from_here() {
    attempt_ = -1;
    observe_windows(true);
  }
  void observe_windows(bool yes) {
    if (std::exchange(observing_, yes) == yes) return;
    yes ? loop_.observers().add(this) : loop_.observers().remove(this);
  }

  void begin(int64_t attempt) {
    while (!ended_.empty() && ended_.back().attempt() >= attempt) ended_.pop_back();  // the run was rolled back, and repeats these windows
    settle(attempt);
    write_before(attempt - 1);
    attempt_ = attempt;
    open_.reset();
    if (files_) files_->begin_at(attempt);
    if (!is_due(attempt)) return;
    open_.emplace(attempt, loop_.skipped_steps());
    if (wants("weights") && has_slices_)
      for (const auto& p : optimizer_.parameters())
        if (is_wanted(p.name)) open_->add("weights", p.name, p.value);
  }

  // Sets `step_after` of the ended windows that precede window `attempt`.
  void settle(int64_t attempt) {
    for (auto& window : ended_)
      if (!window.step_after && window.attempt() < attempt)
        window.step_after = {loop_.global_step(), loop_.skipped_steps() > window.skipped_before()};
  }

  void observe_operators() {
    observer_ = std::make_unique<OpObserver>(*loop_.parts().parameters, [this](const SeenOp& op) { note(op); });
    names_.clear();
  }

  void note(const SeenOp& op) {
    if (op.parameter.empty() || is_cast(op) || !op.output.defined() || !op.output.is_floating_point()) return;
    const auto* parameter = loop_.parts().parameters->find(op.parameter);
    if (parameter == nullptr || op.output.is_alias_of(parameter->value)) return;
    const auto layer = layer_of(op.parameter);
    auto name = layer.empty() ? op.parameter : layer;
    if (names_.emplace(name, op.name).first->second != op.name) name += "." + op.name;  // this is a further operator of the same layer
    if (is_wanted(name)) open_->add("activations", name, op.output);
  }

  void end_forward() {
    if (!observer_) return;
    const auto error = observer_->error();
    observer_.reset();
    if (error != nullptr) std::rethrow_exception(error);
  }

  // Adds the gradients, beginning at the loss. Their elements are in the order of the parameter's memory, as in the slices of the
  // parameter.
  void add_gradients() {
    const at::NoGradGuard no_grad;
    const auto& all = optimizer_.parameters();
    for (size_t i = all.size(); i-- > 0;) {
      const auto &value = all[i].value, &gradient = value.grad();
      if (!gradient.defined() || !is_wanted(all[i].name)) continue;
      const bool same_order = gradient.strides() == value.strides();
      open_->add("gradients", all[i].name, same_order ? gradient : at::empty_like(value, gradient.options()).copy_(gradient));
    }
  }

  void end_window() {
    if (wants("optimizer") && has_slices_)
      for (const auto& [name, tensor] : optimizer_.state().tensors)
        if (tensor.dim() > 0 && is_wanted(name)) open_->add("optimizer", name, tensor);  // step counts have no dimension
    open_->end();
    if (strategy_.ranks().size() > 1) open_->join_ranks(strategy_.ranks());
    if (files_) ended_.push_back(std::move(*open_));
    open_.reset();
  }

  void write_before(int64_t attempt) {
    for (; !ended_.empty() && ended_.front().attempt() < attempt; ended_.pop_front()) {
      auto& window = ended_.front();
      window.resolve();
      const auto [step, skipped] = *window.step_after;
      files_->write(window.rows(step, skipped));
      warn_of_unused();
    }
  }

  void warn_of_unused() {
    if (std::exchange(warned_, true)) return;
    for (size_t i = 0; i < used_.size(); ++i)
      if (!used_[i]) log_warning("monitor.where: '", options_.where[i], "' matches no name; allowed: parts of the names in monitor.csv");
  }

  MonitorOptions options_;
  TrainLoop& loop_;
  Strategy& strategy_;
  const Optimizer& optimizer_;
  bool has_slices_;  // whether this rank reports the parameters that it holds, which no other rank reports
  std::vector<bool> used_;
  bool warned_ = false;
  bool observing_ = true;
  std::optional<MonitorFiles> files_;  // only on the main rank
  int64_t attempt_ = -1;
  std::optional<MonitorWindow> open_;  // the current window, if it is recorded
  std::deque<MonitorWindow> ended_;    // windows that are not yet written
  std::unique_ptr<OpObserver> observer_;
  std::map<std::string, std::string> names_;  // the first operator of each layer in this forward pass
};

class MonitorObserver final : public RunObserver {
 public:
  explicit MonitorObserver(MonitorOptions options) : options_(std::move(options)) {}

  void on_start(const RunView& run, const std::string& run_dir) override {
    if (monitor_ || without_folder_) return;
    const auto& what = options_.what;
    const bool activations = what.empty() || std::find(what.begin(), what.end(), "activations") != what.end();
    check(!activations || run.config.sections.count("dump") == 0, ErrorKind::Usage, "monitor.what",
          "activations are observed by the section dump in this run; hint: monitor: {what: [weights, gradients, optimizer]}");
    const bool own_folder = options_.dir.empty();
    if (own_folder) options_.dir = run.strategy->ranks().from_main(run_dir);  // only the main rank has a run folder
    without_folder_ = options_.dir.empty();
    if (without_folder_) return log_info("monitor: nothing is recorded, since this run has no folder; hint: monitor.dir");
    monitor_ = std::make_shared<Monitor>(options_, run, own_folder);
    run.loop->add_callback(monitor_);
  }

  void on_fit_end(const RunView& /*run*/, const std::string& /*run_dir*/, bool /*failed*/) override {
    if (monitor_) monitor_->finish();
  }

  ~MonitorObserver() override {
    try {
      if (monitor_) monitor_->finish();
    } catch (...) {  // for example, no memory is left; the log is not essential
    }
  }

 private:
  MonitorOptions options_;
  bool without_folder_ = false;
  std::shared_ptr<Monitor> monitor_;
};

}  // namespace

void add_monitor(Parts& parts) {
  parts.observers.add_section<MonitorOptions>("monitor",
                                              "statistics of weights, activations, gradients and optimizer state by layer and step",
                                              [](const MonitorOptions& options) { return std::make_unique<MonitorObserver>(options); });
}

}  // namespace npu_train
