/// The files of a run: those of its loggers, and history.json.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/engine/logger.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/callback.hpp"

namespace npu_train {

/// Converts numbers to the form that they have in history.json. `weight_rate`: the name of EpochReport::weight_per_second; "" leaves it
/// out.
Json to_json(const Scalars& scalars);
Json to_json(const EpochReport& report, const std::string& weight_rate);

/// Creates the next free `dir/name/version_N` and returns it. Error(Checkpoint) if it cannot be created.
std::string make_run_dir(const std::string& dir, const std::string& name);

/// Returns the folders `dir/name/version_N`, newest first, that contain a checkpoint, even an unfinished one, or that a run locks or has
/// locked (FolderLock).
std::vector<std::string> run_dirs(const std::string& dir, const std::string& name);

/// Renames a log that cannot be read, to make room for a new one, and logs a warning with the reason `why`.
void set_aside(const std::filesystem::path& path, const std::string& why);

/// Passes the values of a run to its loggers: a row every `every_n_steps` steps, for each skipped step, validation and epoch, and for the
/// values of TrainLoop::log(). Writes history.json (completely rewritten at the end of each epoch). Read and write failures cause a
/// warning, but never end the run.
class RunFiles final : public Callback {
 public:
  /// `run` contains the run's dir, name and config; its other fields are set later. Continues existing files when a run is resumed.
  RunFiles(LoggedRun run, int64_t every_n_steps, std::vector<std::shared_ptr<Logger>> loggers);
  /// Ends the logs of a program with its own loop.
  ~RunFiles() override;

  /// Call it when an error ends fit().
  void on_fit_failed();

  bool main_rank_only() const override { return true; }
  void on_fit_start(TrainLoop& loop) override;
  void on_step_end(TrainLoop& loop, const StepReport& report) override;
  void on_validation_end(TrainLoop& loop, const Scalars& metrics) override;
  void on_stop_validation(TrainLoop& loop, const Scalars& metrics) override { on_validation_end(loop, metrics); }
  void on_epoch_end(TrainLoop& loop, const EpochReport& report) override;
  void on_overflow(TrainLoop& loop, const OverflowReport& report) override;
  void on_log(TrainLoop& loop, const std::string& name, double value, int64_t step) override;
  void on_log_text(TrainLoop& loop, const std::string& name, const std::string& text, int64_t step) override;
  void on_log_image(TrainLoop& loop, const std::string& name, const at::Tensor& image, int64_t step) override;
  void on_log_histogram(TrainLoop& loop, const std::string& name, const at::Tensor& values, int64_t step) override;
  void on_checkpoint(TrainLoop& loop, const std::string& path) override;
  void on_fit_end(TrainLoop& loop, const RunResult& result) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
