#pragma once

#include <functional>

#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// Runs `forward`, and warns if it changed running statistics that Task::buffers() does not return. They would be missing in checkpoints,
// and in the copies that undo a skipped step.
void warn_of_missing_buffers(Task& task, const std::function<void()>& forward);

}  // namespace npu_train::detail
