/// The files of a run: metrics.csv, history.json, TensorBoard events.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/io/event_writer.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/callback.hpp"

namespace npu_train {

/// Converts numbers to the form that they have in history.json. `weight_rate`: the name of EpochReport::weight_per_second; "" leaves it
/// out.
Json to_json(const Scalars& scalars);
Json to_json(const EpochReport& report, const std::string& weight_rate);

/// Creates the next free `dir/name/version_N` and returns it. Error(Checkpoint) if it cannot be created.
std::string make_run_dir(const std::string& dir, const std::string& name);

/// Returns the folders `dir/name/version_N`, newest first, that have checkpoints or an unfinished first one, or that a run locks or has
/// locked (FolderLock).
std::vector<std::string> run_dirs(const std::string& dir, const std::string& name);

/// Renames a log that cannot be read, to make room for a new one, and logs a warning with the reason `why`.
void set_aside(const std::filesystem::path& path, const std::string& why);

/// Writes during the run: a row of metrics.csv every `every_n_steps` and at the end of each epoch (columns: epoch, step, phase, then the
/// metrics), the values of TrainLoop::log(), the TensorBoard events, and history.json (completely rewritten at the end of each epoch). Read
/// and write failures cause a warning, but never end the run.
class RunFiles final : public Callback {
 public:
  /// Continues existing files when a run is resumed.
  RunFiles(std::string run_dir, int64_t every_n_steps, bool tensorboard);
  ~RunFiles() override;

  bool main_rank_only() const override { return true; }
  void on_fit_start(TrainLoop& loop) override;
  void on_step_end(TrainLoop& loop, const StepReport& report) override;
  void on_validation_end(TrainLoop& loop, const Scalars& metrics) override;
  void on_stop_validation(TrainLoop& loop, const Scalars& metrics) override { on_validation_end(loop, metrics); }
  void on_epoch_end(TrainLoop& loop, const EpochReport& report) override;
  void on_overflow(TrainLoop& loop, const OverflowReport& report) override;
  void on_log(TrainLoop& loop, const std::string& name, double value, int64_t step) override;
  void on_checkpoint(TrainLoop& loop, const std::string& path) override;
  void on_fit_end(TrainLoop& loop, const RunResult& result) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
