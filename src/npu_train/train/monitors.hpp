/// Metrics that the configuration monitors.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/options.hpp"
#include "npu_train/train/report.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

/// Throws Error(Usage) if a monitor is not among the task's metrics, because it would silently have no effect: checkpoint.monitor,
/// early_stopping.monitor if early stopping is enabled, or lr_scheduler.monitor (`of_rate`).
void check_monitors(const Task& task, const CheckpointOptions& checkpoint, const EarlyStoppingOptions& early,
                    const std::string& of_rate = {});

/// Returns whether fit() validates; `has_data`: the run has validation data.
bool validates(const TrainerOptions& options, bool has_data);

/// Throws Error(Usage) if early stopping monitors a validation metric but the run does not validate.
void check_early_stopping(const EarlyStoppingOptions& early, const TrainerOptions& options, bool has_data);

/// Returns whether `monitor` is a metric of the training data, averaged over an epoch.
bool is_of_training(const std::string& monitor);

/// Returns the value of `monitor` ("train/loss", "val/acc1", "acc1" of validation) in the averages of an epoch. NaN if it is missing, or if
/// the loss on the same data is not finite: such weights are useless, whatever their accuracy.
double monitored(const std::string& monitor, const Scalars& train, const Scalars& val);

/// Returns whether `value` is better than `best` by more than `delta`. Every number is better than NaN; NaN is never better.
bool improves(double value, double best, bool larger, double delta);

}  // namespace npu_train::detail
