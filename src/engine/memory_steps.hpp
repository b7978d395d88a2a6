// What the prediction of memory and the report of its end share.
#pragma once

#include "npu_train/analyze/memory_prediction.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {

// What lives between the steps of a loop, and `waiting` batches.
ResidentMemory resident_memory(const LoopParts& parts, const std::vector<Batch>& waiting = {});

}  // namespace npu_train::detail
