// Copies of a task's buffers, from which they can be restored.
#pragma once

#include <vector>

#include "npu_train/train/task.hpp"
#include "train/missing_buffers.hpp"

namespace npu_train::detail {

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
