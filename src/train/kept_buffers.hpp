// The buffers of a task: copies to restore them from, and a warning if the task does not list all of them.
#pragma once

#include <functional>
#include <vector>

#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// Runs `forward`, and warns if it changed running statistics that Task::buffers() does not return. They would be missing in checkpoints,
// and in the copies that undo a skipped step.
void warn_of_missing_buffers(Task& task, const std::function<void()>& forward);

class KeptBuffers {
 public:
  explicit KeptBuffers(Task& task) : task_(task) {}
  // Copies the buffers as they are now.
  void keep();
  // Restores the buffers from the last keep(); does nothing before the first one.
  void restore() const;
  // Calls `pass`, the forward passes of a window. The first window with a batch also checks that the task lists all of its buffers.
  template <class Fn>
  void check_first(bool has_batch, const Fn& pass) {
    if (checked_ || !has_batch) return pass();
    warn_of_missing_buffers(task_, pass);
    checked_ = true;
  }
  // Returns the live buffers, as listed by the first keep().
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

 private:
  Task& task_;
  std::vector<NamedTensor> buffers_;
  std::vector<at::Tensor> kept_;
  bool checked_ = false;
};

}  // namespace npu_train::detail
