#include "npu_train/engine/run_files.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "earlier_logs.hpp"
#include "engine/logged_items.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/folder_lock.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

/// Returns N of "version_N", or -1.
int64_t version_of(const fs::path& path) {
  const auto name = path.filename().string();
  if (!name.starts_with("version_") || name.size() == 8 || name.size() > 17) return -1;
  if (name.find_first_not_of("0123456789", 8) != std::string::npos) return -1;
  return std::stoll(name.substr(8));
}

std::vector<fs::path> versions(const fs::path& dir) {
  std::vector<fs::path> out;
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(dir, ignored))
    if (item.is_directory() && version_of(item.path()) >= 0) out.push_back(item.path());
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return version_of(a) > version_of(b); });
  return out;
}

// Returns "tokens_per_second"; "" if the task's loss counts samples.
std::string weight_rate_name(const Task& task) { return task.weight_unit().empty() ? "" : task.weight_unit() + "_per_second"; }

double per_second(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

}  // namespace

void set_aside(const fs::path& path, const std::string& why) {
  std::error_code error;
  auto aside = path.string() + ".damaged";
  for (int number = 2; fs::exists(fs::symlink_status(aside, error)); ++number) aside = path.string() + ".damaged-" + std::to_string(number);
  fs::rename(path, aside, error);
  log_warning("[output] ", path.string(), ": ", why, "; ", error ? "a new one replaces it" : "it is kept as " + aside,
              "; checkpoints do not depend on it");
}

Json to_json(const Scalars& scalars) {
  auto out = Json::object();
  for (const auto& [name, value] : scalars) out.set(name, value);
  return out;
}

Json to_json(const EpochReport& r, const std::string& weight_rate) {
  auto out = Json::object({{"epoch", r.epoch},
                           {"global_step", r.global_step},
                           {"train", to_json(r.train)},
                           {"val", to_json(r.val)},
                           {"lr", r.lr},
                           {"loss_scale", r.loss_scale},
                           {"skipped", r.skipped},
                           {"seconds", r.seconds},
                           {"val_seconds", r.val_seconds},
                           {"samples_per_second", r.samples_per_second},
                           {"data_wait", r.data_wait},
                           {"peak_memory_bytes", r.peak_memory}});
  if (!weight_rate.empty()) out.set(weight_rate, r.weight_per_second);
  if (r.flops_per_second > 0) out.set("flops_per_second", r.flops_per_second).set("mfu", r.mfu);
  return out;
}

std::string make_run_dir(const std::string& dir, const std::string& name) {
  const auto base = fs::path(dir) / name;
  std::error_code error;
  fs::create_directories(base, error);
  const auto taken = versions(base);
  auto next = taken.empty() ? 0 : version_of(taken.front()) + 1;
  for (int tries = 0; !error && tries < 100; ++tries, ++next) {
    const auto path = base / ("version_" + std::to_string(next));
    if (fs::create_directory(path, error)) return path.string();  // false if another run has created it meanwhile
  }
  throw Error(ErrorKind::Checkpoint, "output",
              (base / "version_N").string() + ": the run's folder cannot be created (" + error.message() + ")",
              "choose a writable folder with output.dir=..., or disable all files with 'output.dir=\"\"'");
}

std::vector<std::string> run_dirs(const std::string& dir, const std::string& name) {
  std::vector<std::string> out;
  for (const auto& path : versions(fs::path(dir) / name)) {
    const bool saved = fs::is_directory(path / "checkpoints") && !fs::is_empty(path / "checkpoints");
    if (saved || fs::exists(path / FolderLock::kFile)) out.push_back(path.string());
  }
  return out;
}

namespace {

/// Returns a text that is equal only for equal rows. It identifies the rows that a resumed run logs again.
std::string key_of(const LoggedRow& row) {
  std::vector<std::string> values;
  for (const auto& [name, value] : row.values) values.push_back(name + "=" + shortest(value));
  std::sort(values.begin(), values.end());
  return str_cat(row.phase, ',', row.epoch, ',', row.step, ',', join(values, ","));
}

}  // namespace

/// The logs. They are not essential: if one cannot be written, values are lost, with a warning, and the training continues.
struct RunFiles::Impl {
  LoggedRun run;
  int64_t every = 1;
  std::vector<std::shared_ptr<Logger>> loggers;
  bool opened = false, ended = false;   // ended: no values were logged after end()
  LoggedEnd how = LoggedEnd::Finished;  // how the last fit() ended
  std::optional<double> loss_scale;     // loss scale after the last step
  std::set<std::string> names;          // names of values
  Json history = Json::array();
  LoggedRow logged{.phase = "log"};  // values of TrainLoop::log() for one step; they share a row
  // Rows of validations and logged values at the step of the resume: the resumed run may write them again.
  std::set<std::string> repeated;

  /// Returns whether `fn` was successful.
  template <class Fn>
  bool logging(const std::string& what, Fn&& fn) {
    try {
      translated("output", fn);
      return true;
    } catch (const Error& e) {
      warn_once(run.dir + " " + what, std::string(e.what()) + "; the training continues, and " + what + " may be incomplete from here on");
      return false;
    }
  }
  void open(TrainLoop& loop);
  void read_earlier(TrainLoop& loop);
  void add(LoggedRow row);
  void flush_logged() {
    if (!logged.values.empty()) add({"log", logged.epoch, logged.step, std::exchange(logged.values, {})});
  }
  /// Passes an item to each logger; `log` returns whether the logger keeps such items.
  template <class Fn>
  void item(const std::string& items, Fn&& log) {
    bool kept = false;
    for (const auto& logger : loggers)
      if (!logging(logger->what(), [&] { kept |= log(*logger); })) kept = true;  // its error was reported
    if (!kept)
      warn_once(run.dir + " " + items,
                "[log] " + items + " are not kept: no logger in use keeps them; hint: output.logger=[csv, tensorboard]");
  }
  void end(LoggedEnd as) {
    how = as;
    ended = true;
    for (const auto& logger : loggers) logging(logger->what(), [&] { logger->end(how); });
  }
  void save_history(Json document) {
    logging("history.json", [&] { save_json(fs::path(run.dir) / "history.json", document); });
  }
};

/// Begins the logs.
void RunFiles::Impl::open(TrainLoop& loop) {
  if (std::exchange(opened, true)) return;
  run.columns = {"loss"};
  for (const auto& name : all_metric_names(*loop.parts().task)) run.columns.push_back(name);
  for (const char* name : {"lr", "grad_norm", "loss_scale", "skipped", "samples_per_second", "data_wait", "seconds"})
    run.columns.emplace_back(name);
  if (const auto rate = weight_rate_name(*loop.parts().task); !rate.empty()) run.columns.push_back(rate);
  if (loop.parts().flops_per_sample > 0) run.columns.insert(run.columns.end(), {"flops_per_second", "mfu"});
  if (loop.batches_seen() > 0) read_earlier(loop);
  names.insert(run.columns.begin(), run.columns.end());
  std::erase_if(loggers, [&](const auto& logger) { return !logging(logger->what(), [&] { logger->begin(run); }); });
  run.kept.clear();
  run.earlier_csv.clear();
}

/// Reads what an earlier part of the run logged up to the loop's position.
void RunFiles::Impl::read_earlier(TrainLoop& loop) {
  const auto csv = fs::path(run.dir) / "metrics.csv", epochs = fs::path(run.dir) / "history.json";
  run.from = run.items_from = loop.global_step() + 1;
  logging("metrics.csv", [&] {
    if (!fs::exists(csv)) return;
    std::vector<std::string> columns = {"epoch", "step", "phase"};
    columns.insert(columns.end(), run.columns.begin(), run.columns.end());
    run.earlier_csv = detail::earlier_rows(loop, csv, columns);
    run.kept = detail::rows_from(loop.global_step(), run.earlier_csv, columns);
    run.columns.assign(columns.begin() + 3, columns.end());
    run.from = loop.global_step();
  });
  for (const auto& row : run.kept)
    if (row.phase == "val" || row.phase == "log") repeated.insert(key_of(row));
  logging("history.json", [&] {
    if (fs::exists(epochs)) history = detail::earlier_epochs(loop, epochs);
  });
}

void RunFiles::Impl::add(LoggedRow row) {
  flush_logged();  // keeps rows in the order of their steps
  if (repeated.erase(key_of(row)) > 0) return;
  ended = false;
  for (const auto& logger : loggers) logging(logger->what(), [&] { logger->log(row); });
}

RunFiles::RunFiles(LoggedRun run, int64_t every_n_steps, std::vector<std::shared_ptr<Logger>> loggers) : impl_(std::make_unique<Impl>()) {
  impl_->run = std::move(run);
  impl_->every = every_n_steps;
  impl_->loggers = std::move(loggers);
}

// Writes the values that were logged after the last step and validation.
RunFiles::~RunFiles() {
  try {
    if (!impl_->opened) return;
    impl_->flush_logged();
    if (!impl_->ended) impl_->end(std::uncaught_exceptions() > 0 ? LoggedEnd::Failed : impl_->how);
  } catch (...) {  // for example if memory is exhausted: the log is not essential
  }
}

void RunFiles::on_fit_failed() {
  if (!impl_->opened) return;
  impl_->flush_logged();
  impl_->end(LoggedEnd::Failed);
}

void RunFiles::on_fit_start(TrainLoop& loop) {
  impl_->open(loop);
  impl_->loss_scale = loop.parts().loss_scale();
}

void RunFiles::on_step_end(TrainLoop& loop, const StepReport& r) {
  impl_->open(loop);  // a program with its own loop does not cause on_fit_start
  const bool scale_moved = impl_->loss_scale.value_or(r.loss_scale) != r.loss_scale;
  impl_->loss_scale = r.loss_scale;
  if ((r.attempt + 1) % impl_->every != 0 && r.taken && !scale_moved) return;
  auto values = r.measured();
  values.insert(values.end(), {{"lr", r.lr},
                               {"grad_norm", r.grad_norm},
                               {"loss_scale", r.loss_scale},
                               {"skipped", r.taken ? 0 : 1},
                               {"samples_per_second", per_second(static_cast<double>(r.samples), r.seconds)},
                               {"data_wait", r.data_wait},
                               {"seconds", r.seconds}});
  if (const auto rate = weight_rate_name(*loop.parts().task); !rate.empty()) values.emplace_back(rate, per_second(r.weight, r.seconds));
  impl_->add({"train", r.epoch, r.global_step, std::move(values)});
}

void RunFiles::on_validation_end(TrainLoop& loop, const Scalars& metrics) {
  impl_->open(loop);
  impl_->add({"val", loop.epoch(), loop.global_step(), metrics});
}

void RunFiles::on_epoch_end(TrainLoop& loop, const EpochReport& r) {
  const auto weight_rate = weight_rate_name(*loop.parts().task);
  auto values = r.train;
  values.insert(values.end(), {{"lr", r.lr},
                               {"loss_scale", r.loss_scale},
                               {"skipped", static_cast<double>(r.skipped)},
                               {"samples_per_second", r.samples_per_second},
                               {"data_wait", r.data_wait},
                               {"seconds", r.seconds}});
  if (!weight_rate.empty()) values.emplace_back(weight_rate, r.weight_per_second);
  if (r.flops_per_second > 0) values.insert(values.end(), {{"flops_per_second", r.flops_per_second}, {"mfu", r.mfu}});
  impl_->add({"epoch", r.epoch, r.global_step, std::move(values)});
  impl_->history.push_back(to_json(r, weight_rate));
  impl_->save_history(Json::object({{"epochs", impl_->history}}));
}

void RunFiles::on_overflow(TrainLoop&, const OverflowReport& report) {
  impl_->logging("the overflow report", [&] { write_overflow_report(report, impl_->run.dir); });
}

void RunFiles::on_log(TrainLoop& loop, const std::string& name, double value, int64_t step) {
  impl_->open(loop);
  constexpr size_t kMostNames = 1000;
  check(impl_->names.count(name) > 0 || impl_->names.size() < kMostNames, ErrorKind::Usage, "log", "'", name,
        "' is one name too many: there are ", kMostNames, "; hint: log the same name at different steps");
  impl_->names.insert(name);
  auto& logged = impl_->logged;
  const bool again = std::any_of(logged.values.begin(), logged.values.end(), [&](const auto& v) { return v.first == name; });
  if (again || logged.step != step || logged.epoch != loop.epoch()) impl_->flush_logged();
  logged.epoch = loop.epoch(), logged.step = step;
  logged.values.emplace_back(name, value);
}

void RunFiles::on_log_text(TrainLoop& loop, const std::string& name, const std::string& text, int64_t step) {
  impl_->open(loop);
  impl_->item("texts", [&](Logger& logger) { return logger.log_text(name, text, step); });
}

void RunFiles::on_log_image(TrainLoop& loop, const std::string& name, const at::Tensor& image, int64_t step) {
  impl_->open(loop);
  LoggedImage logged;
  if (impl_->logging("images", [&] { logged = detail::logged_image(image); }))
    impl_->item("images", [&](Logger& logger) { return logger.log_image(name, logged, step); });
}

void RunFiles::on_log_histogram(TrainLoop& loop, const std::string& name, const at::Tensor& values, int64_t step) {
  impl_->open(loop);
  LoggedHistogram logged;
  if (impl_->logging("histograms", [&] { logged = detail::logged_histogram(values); }))
    impl_->item("histograms", [&](Logger& logger) { return logger.log_histogram(name, logged, step); });
}

void RunFiles::on_checkpoint(TrainLoop&, const std::string&) { impl_->flush_logged(); }

void RunFiles::on_fit_end(TrainLoop&, const RunResult& result) {
  impl_->flush_logged();
  impl_->save_history(Json::object({{"epochs", impl_->history},
                                    {"reason", stop_reason_name(result.reason)},
                                    {"global_step", result.global_step},
                                    {"skipped_steps", result.skipped_steps},
                                    {"batches_seen", result.batches_seen},
                                    {"final_val", to_json(result.final_val)}}));
  impl_->end(result.reason == StopReason::Requested ? LoggedEnd::Stopped : LoggedEnd::Finished);
}

}  // namespace npu_train
