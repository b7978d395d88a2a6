// What the prediction of memory and the report of its end share.
#pragma once

#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

// Batches that are run to know all others. Not 1: sums over the batch vanish there, and BatchNorm may have no variance.
constexpr int64_t kFewSamples = 2, kMoreSamples = 3;

// The tensors between the steps of a loop, and those of `waiting` batches on its device.
ResidentMemory resident_memory(const LoopParts& parts, const std::vector<Batch>& waiting = {});

// Rows of a batch, in separate memory on its device; repeated if it has too few.
Batch rows_of(const Batch& batch, int64_t count);

// Copies `batches` to the device and does with them what a loop does, without the optimizer, as far as memory goes. `on_host`: a training
// copies one when the one before is done.
void run_again(Task& task, Precision& precision, const Device& device, Pass pass, const std::vector<Batch>& batches,
               MemoryRecorder& recorder, bool on_host = false);

}  // namespace npu_train::detail
