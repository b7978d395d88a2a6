// trainer.cuda_graphs: whether a run captures the forward and backward of its windows.
#pragma once

#include "npu_train/device/device.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/train/options.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// Returns whether the run captures graphs. If it does not, logs the reason if graphs are requested or the device is a CUDA device.
bool captures_graphs(const TrainerOptions& options, const Device& device, const Task& task, const Strategy& strategy);

}  // namespace npu_train::detail
