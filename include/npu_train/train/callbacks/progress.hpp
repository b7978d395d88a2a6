/// Progress for a human reader: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/train/callback.hpp"
#include "npu_train/train/metric.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

namespace detail {
struct LinePart;
class ProgressLine;
}  // namespace detail

/// Reports epoch, step, ETA of the run (and of the epoch), current loss (average), the task's metrics, lr, samples/s, share of time spent
/// waiting for data, grad_norm, loss_scale, skipped steps and memory; during a validation its batches and ETA.
class Progress final : public Callback {
 public:
  /// `write` receives text: complete lines, or with `bar` also lines that begin with a carriage return and replace the previous one.
  /// `columns` returns the width of the terminal (0: unknown) and is called for each line, so that a resized terminal is detected. A bar
  /// that is too wide loses the parts in brackets first, then the least important values.
  Progress(std::function<void(const std::string&)> write, bool bar, int64_t every_n_steps, std::function<size_t()> columns = {});
  ~Progress() override;

  bool main_rank_only() const override { return true; }
  void on_fit_start(TrainLoop& loop) override;
  void on_epoch_start(TrainLoop& loop, int64_t epoch) override;
  void on_epoch_resume(TrainLoop& loop, int64_t epoch) override { on_epoch_start(loop, epoch); }
  void on_step_end(TrainLoop& loop, const StepReport& report) override;
  void on_validation_batch(TrainLoop& loop, int64_t done, std::optional<int64_t> total) override;
  void on_validation_end(TrainLoop& loop, const Scalars& metrics) override;
  void on_stop_validation(TrainLoop& loop, const Scalars& metrics) override;
  void on_epoch_end(TrainLoop& loop, const EpochReport& report) override;
  void on_checkpoint(TrainLoop& loop, const std::string& path) override;

 private:
  std::vector<detail::LinePart> parts(TrainLoop& loop, const StepReport& report) const;
  Scalars averages(const Task& task) const;
  std::optional<double> run_eta(TrainLoop& loop, const StepReport& report) const;
  size_t width() const;

  std::function<void(const std::string&)> write_;
  bool bar_;
  int64_t every_;
  std::unique_ptr<detail::ProgressLine> line_;
  double started_ = -1;      // start of the run in this process
  int64_t windows_ = 0;      // windows processed since then
  int64_t in_epoch_ = 0;     // windows of the epoch, including those before a resume
  int64_t steps_timed_ = 0;  // windows of the epoch that were timed in this process
  int64_t skipped_ = 0;      // skipped steps that were reported in this process
  double seconds_ = 0;
  double data_wait_ = 0;
  int64_t samples_ = 0;
  double weight_ = 0;
  double first_validated_ = 0;  // time at which the first batch of a validation was done
  MetricMeter average_;
};

}  // namespace npu_train
