/// Names of metrics that the configuration watches.
#pragma once

#include <string>
#include <vector>

#include "npu_train/train/options.hpp"
#include "npu_train/train/report.hpp"

namespace npu_train::detail {

/// Error(Usage) for a checkpoint.monitor or, where it is on, an early_stopping.monitor of which a task with these metrics has no value. It
/// would rank nothing and stop nothing, in silence.
void check_monitors(std::vector<std::string> metrics, const CheckpointOptions& checkpoint, const EarlyStoppingOptions& early);

/// Whether `monitor` is measured on the training data, over an epoch.
bool is_of_training(const std::string& monitor);

/// The value of `monitor` ("train/loss", "val/acc1", "acc1" of validation) in the averages of an epoch; NaN if it has none, and if the loss
/// next to it is not finite: such weights are good for nothing, whatever their accuracy.
double monitored(const std::string& monitor, const Scalars& train, const Scalars& val);

/// Whether `value` is better than `best` by more than `delta`. Anything is better than NaN, and NaN is better than nothing.
bool improves(double value, double best, bool larger, double delta);

}  // namespace npu_train::detail
