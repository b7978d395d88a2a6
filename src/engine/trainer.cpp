#include "npu_train/engine/trainer.hpp"

#include <ATen/Version.h>

#include <filesystem>

#include <ATen/Parallel.h>

#include "npu_train/align/environment.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/engine/leak_watch.hpp"
#include "npu_train/engine/progress.hpp"
#include "npu_train/engine/run_files.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/loop.hpp"
#include "out_of_memory.hpp"
#include "process_state.hpp"
#include "profiled_fit.hpp"
#include "run_build.hpp"

namespace npu_train {

namespace fs = std::filesystem;

struct Trainer::Impl {
  RunConfig config;
  Parts parts;
  Run run;
  std::string run_dir;
  LogSink log_file;  // of run_dir
  std::vector<std::shared_ptr<Callback>> callbacks;
  std::vector<StepObserver*> observers;
  State rng;            // of the run, while a call is not under way
  bool inside = false;  // a callback calls back
  std::shared_ptr<std::atomic<bool>> stop = std::make_shared<std::atomic<bool>>(false);

  /// Every public call: errors translated, process-wide settings in force, everything built.
  template <class Fn>
  auto call(const char* where, Fn&& fn) -> decltype(fn()) {
    return translated(where, [&] {
      if (inside) return fn();
      const ProcessState scope(config, rng, inside);
      if (!run.loop) build();
      try {
        return translated(where, fn);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::OutOfMemory) throw out_of_memory(e);
        if (log_file) log_file(LogLevel::Error, e.what());  // what ended a run stands at the end of its log
        throw;
      }
    });
  }

  /// With what can be found out, which the run's log gets too.
  Error out_of_memory(const Error& cause) {
    auto error = detail::explain_out_of_memory(run, config, parts, run.loop->take_failed_window(), cause);
    if (log_file) log_file(LogLevel::Error, error.what());
    return error;
  }

  void build() {
    const auto task = run.task;
    const auto data = run.data;
    try {
      run.build(config, parts, stop);
    } catch (...) {  // half a run would be taken for one that was given
      std::optional<Error> explained;
      if (const auto error = translate_current_exception("Trainer::setup"); error.kind() == ErrorKind::OutOfMemory)
        explained = detail::explain_out_of_memory_in_setup(run, config, error);
      begin(task, data);
      if (explained) throw *explained;
      throw;
    }
    for (const auto& c : callbacks) run.loop->add_callback(c);
    run.loop->add_callback(std::make_shared<LeakWatch>());
    for (auto* o : observers) run.loop->observers().add(o);
  }

  /// A new run over what is given in code, or over the configuration where that is empty.
  void begin(std::shared_ptr<Task> task, DatasetPair data) {
    run = Run{};
    run.task = std::move(task);
    run.data = std::move(data);
    rng = {};
    run_dir.clear();
    log_file = {};
  }

  std::string run_name() const {
    if (!config.output.name.empty()) return config.output.name;
    if (config.model.name.empty()) return "run";
    return config.model.name + (config.data.name.empty() ? "" : "_" + config.data.name);
  }

  bool writes() const { return !config.output.dir.empty() && !config.trainer.fast_dev_run; }

  /// Where the run's files go, found once: the folder of the checkpoint that it goes on from, or a new one.
  void open_run_dir(const std::string& existing = "") {
    if (!run_dir.empty() || !writes()) return;
    const auto dir = existing.empty() ? make_run_dir(config.output.dir, run_name()) : existing;
    write_file_atomic((fs::path(dir) / "config.yaml").string(), to_yaml(run.resolved));
    write_environment(fs::path(dir) / "environment.json");
    run.loop->add_callback(std::make_shared<RunFiles>(dir, config.trainer.log_every_n_steps, config.output.tensorboard));
    if (config.checkpoint.enabled) run.open_store((fs::path(dir) / "checkpoints").string(), config.checkpoint);
    log_file = make_file_sink((fs::path(dir) / "train.log").string());
    const auto lines = [file = log_file](const std::string& text) {
      file(LogLevel::Info, std::string_view(text).substr(0, text.find('\n')));
    };
    run.loop->add_callback(std::make_shared<Progress>(lines, /*bar=*/false, config.trainer.log_every_n_steps));
    run_dir = dir;  // last: now everything is there
  }

  RunResult fit() {
    return call("Trainer::fit", [&] {
      open_run_dir();
      const ScopedLogTee tee(log_file);
      run.announce(config, run_dir);
      run.open_dump(config, run_dir);
      return ProfiledFit(config, run).fit(run_dir);
    });
  }

  std::string resume(const std::string& which);
};

std::string Trainer::Impl::resume(const std::string& which) {
  std::string checkpoint, dir;
  if (which == "auto" || which == "last" || which == "best") {
    check(which == "auto" || !config.output.dir.empty() || !run_dir.empty(), ErrorKind::Checkpoint, "Trainer::resume",
          "output.dir is empty: there is no run to resume; hint: give a path");
    if (config.output.dir.empty() && run_dir.empty()) return "";
    // a run that was killed before its first checkpoint must not hide the one before
    for (const auto& candidate : run_dir.empty() ? run_dirs(config.output.dir, run_name()) : std::vector<std::string>{run_dir}) {
      const auto folder = fs::path(candidate) / "checkpoints";
      remove_leftovers(folder);
      dir = candidate;
      checkpoint = CheckpointStore(folder.string(), config.checkpoint).resolve(which);
      if (!checkpoint.empty()) break;
    }
    check(!checkpoint.empty() || which == "auto", ErrorKind::Checkpoint, "Trainer::resume", "there is no checkpoint '", which, "' under ",
          (fs::path(config.output.dir) / run_name()).string(),
          "; hint: --resume auto takes the newest that is whole, --resume PATH any other");
    if (checkpoint.empty()) {
      log_info("nothing to resume: a new run starts");
      return "";
    }
  } else {
    // A run of this output name goes on in its folder; any other checkpoint is only read, and a new run begins from it.
    checkpoint = find_checkpoint(which);
    const auto parent = fs::path(checkpoint).parent_path();
    std::error_code error;
    const bool own = fs::equivalent(parent.parent_path().parent_path(), fs::path(config.output.dir) / run_name(), error);
    if (parent.filename() == "checkpoints" && own) dir = parent.parent_path().string();
  }
  const auto meta = read_checkpoint_meta(checkpoint);
  if (meta.threads != at::get_num_threads() || meta.cpu != at::get_cpu_capability())
    log_warning("the checkpoint was made with ", meta.threads, " threads on ", meta.cpu, "; here are ", at::get_num_threads(), " on ",
                at::get_cpu_capability(), ": the last bits of sums will differ");
  run.loop->load_state(load_checkpoint(checkpoint));
  open_run_dir(dir);
  const ScopedLogTee tee(log_file);
  log_info("resumed from ", checkpoint, " (epoch ", meta.epoch, ", step ", meta.global_step, ")");
  return checkpoint;
}

Trainer::Trainer(RunConfig config, Parts parts) : impl_(std::make_unique<Impl>()) {
  impl_->config = std::move(config);
  impl_->parts = std::move(parts);
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Trainer::setup() {
  impl_->call("Trainer::setup", [] {});
}

void Trainer::setup(std::shared_ptr<Task> task, std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val) {
  DatasetPair data;
  data.train = std::move(train);
  data.val = std::move(val);
  impl_->begin(std::move(task), std::move(data));
  setup();
}

RunResult Trainer::fit() { return impl_->fit(); }

RunResult Trainer::fit(std::shared_ptr<Task> task, std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> val) {
  if (impl_->run.task != task || impl_->run.data.train != train || impl_->run.data.val != val)
    setup(std::move(task), std::move(train), std::move(val));
  return impl_->fit();
}

RunResult Trainer::fit(std::shared_ptr<Task> task, std::shared_ptr<IterableDataset> train, std::shared_ptr<const Dataset> val) {
  if (impl_->run.task != task || impl_->run.data.train_stream != train || impl_->run.data.val != val) {
    DatasetPair data;
    data.train_stream = std::move(train);
    data.val = std::move(val);
    impl_->begin(std::move(task), std::move(data));
  }
  return impl_->fit();
}

Scalars Trainer::validate() {
  return impl_->call("Trainer::validate", [&] { return impl_->run.loop->validate(); });
}

at::Tensor Trainer::predict(const at::Tensor& input) {
  return impl_->call("Trainer::predict", [&] { return impl_->run.loop->predict(input); });
}

StepReport Trainer::train_step(const std::vector<Batch>& window) {
  return impl_->call("Trainer::train_step", [&] {
    impl_->run.open_dump(impl_->config, impl_->run_dir);
    return impl_->run.loop->train_step(window);
  });
}

void Trainer::set_epoch(int64_t epoch) {
  impl_->call("Trainer::set_epoch", [&] { impl_->run.loop->set_epoch(epoch); });
}

std::optional<EpochReport> Trainer::train_epoch() {
  return impl_->call("Trainer::train_epoch", [&] {
    impl_->run.open_dump(impl_->config, impl_->run_dir);
    return impl_->run.loop->train_epoch();
  });
}

std::string Trainer::resume(const std::string& which) {
  return impl_->call("Trainer::resume", [&] { return impl_->resume(which); });
}

std::string Trainer::save_checkpoint() {
  return impl_->call("Trainer::save_checkpoint", [&] {
    impl_->open_run_dir();
    return impl_->run.loop->save_checkpoint();
  });
}

RunState Trainer::state() {
  return impl_->call("Trainer::state", [&] { return impl_->run.loop->state(); });
}

void Trainer::load_state(const RunState& state, const std::vector<std::string>& leave_out) {
  impl_->call("Trainer::load_state", [&] { impl_->run.loop->load_state(state, leave_out); });
}

void Trainer::request_stop() noexcept { impl_->stop->store(true, std::memory_order_relaxed); }

void Trainer::add_callback(std::shared_ptr<Callback> callback) {
  if (impl_->run.loop) impl_->run.loop->add_callback(callback);
  impl_->callbacks.push_back(std::move(callback));
}

void Trainer::add_observer(StepObserver* observer) {
  if (impl_->run.loop) impl_->run.loop->observers().add(observer);
  impl_->observers.push_back(observer);
}

const RunConfig& Trainer::config() const { return impl_->config; }
const std::string& Trainer::run_dir() const { return impl_->run_dir; }

TrainLoop& Trainer::loop() {
  setup();
  return *impl_->run.loop;
}

Task& Trainer::task() {
  setup();
  return *impl_->run.task;
}

const DatasetPair& Trainer::data() {
  setup();
  return impl_->run.data;
}

const Model& Trainer::model() {
  setup();
  check(impl_->run.model.module != nullptr, ErrorKind::Usage, "Trainer::model", "the task was given in code; the trainer knows no model");
  return impl_->run.model;
}

}  // namespace npu_train
