#include "npu_train/engine/run_files.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

/// The N of "version_N", or -1.
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

Json to_json(const Scalars& scalars) {
  auto out = Json::object();
  for (const auto& [name, value] : scalars) out.set(name, value);
  return out;
}

Json to_json(const EpochReport& r) {
  return Json::object({{"epoch", r.epoch},
                       {"global_step", r.global_step},
                       {"train", to_json(r.train)},
                       {"val", to_json(r.val)},
                       {"lr", r.lr},
                       {"loss_scale", r.loss_scale},
                       {"skipped", r.skipped},
                       {"seconds", r.seconds},
                       {"val_seconds", r.val_seconds},
                       {"images_per_second", r.images_per_second},
                       {"data_wait", r.data_wait},
                       {"peak_memory_bytes", r.peak_memory}});
}

}  // namespace

std::string make_run_dir(const std::string& dir, const std::string& name) {
  const auto base = fs::path(dir) / name;
  std::error_code error;
  fs::create_directories(base, error);
  const auto taken = versions(base);
  auto next = taken.empty() ? 0 : version_of(taken.front()) + 1;
  for (int tries = 0; !error && tries < 100; ++tries, ++next) {
    const auto path = base / ("version_" + std::to_string(next));
    if (fs::create_directory(path, error)) return path.string();  // another run may take the number between the look and the making
  }
  throw Error(ErrorKind::Checkpoint, "output",
              (base / "version_N").string() + ": the run's folder cannot be made (" + error.message() + ")",
              "choose a writable folder with output.dir=..., or write nothing with 'output.dir=\"\"'");
}

std::vector<std::string> run_dirs(const std::string& dir, const std::string& name) {
  std::vector<std::string> out;
  for (const auto& path : versions(fs::path(dir) / name))
    if (fs::is_directory(path / "checkpoints") && !fs::is_empty(path / "checkpoints")) out.push_back(path.string());
  return out;
}

struct RunFiles::Impl {
  std::string dir;
  int64_t every = 1;
  bool tensorboard = true;
  std::optional<double> loss_scale;  // after the last step
  std::vector<std::string> columns;
  std::ofstream csv;
  Json history = Json::array();
  std::optional<EventWriter> events;

  void open(TrainLoop& loop);
  void row(const std::string& phase, int64_t epoch, int64_t step, const Scalars& values);
};

/// Cells of one row of metrics.csv by column; what is missing is empty.
std::map<std::string, std::string> cells_of(const std::string& line, const std::vector<std::string>& columns) {
  std::map<std::string, std::string> out;
  std::istringstream cells(line);
  for (const auto& column : columns) std::getline(cells, out[column], ',');
  return out;
}

/// The rows of an earlier part of a run up to where `loop` goes on: up to its step, and of steps that were skipped (each has a row) as many
/// as it counts.
std::string rows_before(const TrainLoop& loop, const std::string& path, const std::vector<std::string>& columns) {
  std::string kept, line;
  int64_t skips = 0;
  std::ifstream in(path);
  std::getline(in, line);
  while (std::getline(in, line)) {
    const auto cells = cells_of(line, columns);
    const auto& step = cells.at("step");
    if (step.empty() || step.find_first_not_of("0123456789") != std::string::npos || std::stoll(step) > loop.global_step()) continue;
    if (cells.at("phase") == "train" && cells.at("skipped") == "1" && ++skips > loop.skipped_steps()) continue;
    kept += line + "\n";
  }
  return kept;
}

/// Opens metrics.csv; of an earlier part of the same run the rows before the loop's place stay.
void RunFiles::Impl::open(TrainLoop& loop) {
  columns = {"loss"};
  for (const auto& name : loop.parts().task->metric_names()) columns.push_back(name);
  for (const char* name : {"lr", "grad_norm", "loss_scale", "skipped", "images_per_second", "data_wait", "seconds"})
    columns.emplace_back(name);
  std::vector<std::string> all = {"epoch", "step", "phase"};
  all.insert(all.end(), columns.begin(), columns.end());
  const auto path = (fs::path(dir) / "metrics.csv").string();
  const bool goes_on = fs::exists(path) && loop.batches_seen() > 0;
  write_file_atomic(path, join(all, ",") + "\n" + (goes_on ? rows_before(loop, path, all) : ""));
  csv.open(path, std::ios::app);
  check(csv.good(), ErrorKind::Checkpoint, "output", path, ": cannot be opened for writing");

  const auto history_path = fs::path(dir) / "history.json";
  if (fs::exists(history_path) && loop.batches_seen() > 0) {
    const auto before = load_json(history_path);
    const auto where = history_path.string();
    for (const auto& epoch : before.at("epochs", where).items(where))
      if (epoch.at("global_step", where).integer(where) <= loop.global_step()) history.push_back(epoch);
  }
  if (tensorboard) events.emplace(dir);
}

void RunFiles::Impl::row(const std::string& phase, int64_t epoch, int64_t step, const Scalars& values) {
  csv << epoch << ',' << step << ',' << phase;
  for (const auto& name : columns) {
    const double value = scalar_or(values, name, std::nan(""));
    csv << ',';
    if (std::any_of(values.begin(), values.end(), [&](const auto& v) { return v.first == name; })) csv << shortest(value);
  }
  csv << '\n';
  csv.flush();
  if (!csv.good()) {
    csv.clear();
    warn_once("metrics.csv " + dir, dir + "/metrics.csv: rows cannot be written (disk full?)");
  }
  if (!events) return;
  Scalars tags;
  for (const auto& [name, value] : values) tags.emplace_back(phase + "/" + name, value);
  events->add_scalars(tags, step);
}

RunFiles::RunFiles(std::string run_dir, int64_t every_n_steps, bool tensorboard) : impl_(std::make_unique<Impl>()) {
  impl_->dir = std::move(run_dir);
  impl_->every = every_n_steps;
  impl_->tensorboard = tensorboard;
}

RunFiles::~RunFiles() = default;

void RunFiles::on_fit_start(TrainLoop& loop) {
  if (!impl_->csv.is_open()) impl_->open(loop);
  impl_->loss_scale = loop.parts().precision->scale();
}

void RunFiles::on_step_end(TrainLoop& loop, const StepReport& r) {
  if (!impl_->csv.is_open()) impl_->open(loop);  // a program that owns its loop has no on_fit_start
  const bool scale_moved = impl_->loss_scale.value_or(r.loss_scale) != r.loss_scale;
  impl_->loss_scale = r.loss_scale;
  if ((r.attempt + 1) % impl_->every != 0 && r.taken && !scale_moved) return;
  auto values = r.metrics;
  values.insert(values.end(), {{"lr", r.lr},
                               {"grad_norm", r.grad_norm},
                               {"loss_scale", r.loss_scale},
                               {"skipped", r.taken ? 0 : 1},
                               {"images_per_second", r.seconds > 0 ? static_cast<double>(r.samples) / r.seconds : 0},
                               {"data_wait", r.data_wait},
                               {"seconds", r.seconds}});
  impl_->row("train", r.epoch, r.global_step, values);
}

void RunFiles::on_validation_end(TrainLoop& loop, const Scalars& metrics) {
  if (!impl_->csv.is_open()) impl_->open(loop);
  impl_->row("val", loop.epoch(), loop.global_step(), metrics);
}

void RunFiles::on_epoch_end(TrainLoop&, const EpochReport& r) {
  auto values = r.train;
  values.insert(values.end(), {{"lr", r.lr},
                               {"loss_scale", r.loss_scale},
                               {"skipped", static_cast<double>(r.skipped)},
                               {"images_per_second", r.images_per_second},
                               {"data_wait", r.data_wait},
                               {"seconds", r.seconds}});
  impl_->row("epoch", r.epoch, r.global_step, values);
  impl_->history.push_back(to_json(r));
  save_json(fs::path(impl_->dir) / "history.json", Json::object({{"epochs", impl_->history}}));
}

void RunFiles::on_overflow(TrainLoop&, const OverflowReport& report) { write_overflow_report(report, impl_->dir); }

void RunFiles::on_fit_end(TrainLoop&, const RunResult& result) {
  save_json(fs::path(impl_->dir) / "history.json", Json::object({{"epochs", impl_->history},
                                                                 {"reason", stop_reason_name(result.reason)},
                                                                 {"global_step", result.global_step},
                                                                 {"skipped_steps", result.skipped_steps},
                                                                 {"batches_seen", result.batches_seen},
                                                                 {"final_val", to_json(result.final_val)}}));
}

}  // namespace npu_train
