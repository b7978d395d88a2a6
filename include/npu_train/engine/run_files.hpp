/// The files of a run: metrics.csv, history.json, TensorBoard events.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "npu_train/io/event_writer.hpp"
#include "npu_train/train/callback.hpp"

namespace npu_train {

/// Makes the next free `dir/name/version_N` and returns it. Error(Checkpoint) when it cannot be made.
std::string make_run_dir(const std::string& dir, const std::string& name);

/// Every `dir/name/version_N` that has checkpoints, had begun one, or is or was locked by a run (FolderLock), newest first.
std::vector<std::string> run_dirs(const std::string& dir, const std::string& name);

/// Writes while the run goes on: a row of metrics.csv every `every_n_steps` and at each epoch's end (columns: epoch, step, phase, then the
/// metrics), the events, and history.json (rewritten whole at each epoch's end). What cannot be written or read is a warning and never ends
/// the run.
class RunFiles final : public Callback {
 public:
  /// Goes on in the files that a resumed run finds.
  RunFiles(std::string run_dir, int64_t every_n_steps, bool tensorboard);
  ~RunFiles() override;

  void on_fit_start(TrainLoop& loop) override;
  void on_step_end(TrainLoop& loop, const StepReport& report) override;
  void on_validation_end(TrainLoop& loop, const Scalars& metrics) override;
  void on_epoch_end(TrainLoop& loop, const EpochReport& report) override;
  void on_overflow(TrainLoop& loop, const OverflowReport& report) override;
  void on_fit_end(TrainLoop& loop, const RunResult& result) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
