// Common parts of the prediction of memory and the report when memory runs out.
#pragma once

#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

// Batch sizes that are recorded to predict all others. A batch of 1 is not suitable, since sums over it are trivial and BatchNorm may have
// no variance.
constexpr int64_t kFewSamples = 2, kMoreSamples = 3;

// Returns the tensors that persist between the steps of a loop, and the tensors of `waiting` batches on its device.
ResidentMemory resident_memory(const LoopParts& parts, const std::vector<Batch>& waiting = {});

// Returns `count` rows of a batch, in separate memory on its device; rows are repeated if it has too few.
Batch rows_of(const Batch& batch, int64_t count);

// Copies `batches` to the device and runs them like a loop, but without the optimizer. `on_host`: copies each batch only after the previous
// one is done.
void run_again(Task& task, Precision& precision, const Device& device, Pass pass, const std::vector<Batch>& batches,
               MemoryRecorder& recorder, bool on_host = false);

}  // namespace npu_train::detail
