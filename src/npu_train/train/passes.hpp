/// The passes of a training over a batch or a window, for code that repeats a part of a step: tools, and the replay of an overflow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "npu_train/base/step_observer.hpp"
#include "npu_train/precision/precision.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

/// Casts a batch with `precision` and returns the task's loss on it, computed in the scope of `precision`. Error(Usage) if the task throws
/// or returns a loss that is not a scalar.
StepOutput training_output(Task& task, const Precision& precision, const Batch& batch, uint64_t draw_key = 0,
                           std::shared_ptr<const ForwardContext::Ranks> ranks = nullptr);
/// Like training_output(), for a batch of a validation. The caller sets evaluation mode, disables gradients, and opens the precision's
/// scope, in which it also computes the metrics.
StepOutput validation_output(Task& task, const Precision& precision, const Batch& batch);

/// Computes forward and backward of a window as TrainStep does in a single process, without an update: gradients are added to existing
/// ones, and stay scaled. `bring`: see StepOptions.
void run_window(Task& task, Precision& precision, const std::vector<Batch>& window, const Observers& observers = {},
                const std::function<Batch(const Batch&)>& bring = {});

}  // namespace npu_train::detail
