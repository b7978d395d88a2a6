// Copies of a task's buffers, from which they can be restored.
#pragma once

#include <vector>

#include "npu_train/train/task.hpp"

namespace npu_train::detail {

class KeptBuffers {
 public:
  explicit KeptBuffers(Task& task) : task_(task) {}
  // Copies the buffers as they are now.
  void keep();
  // Restores the buffers from the last keep(); does nothing before the first one.
  void restore() const;
  // Returns the live buffers, as listed by the first keep().
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

 private:
  Task& task_;
  std::vector<NamedTensor> buffers_;
  std::vector<at::Tensor> kept_;
};

}  // namespace npu_train::detail
