// Copies of a task's buffers, to go back to.
#pragma once

#include <vector>

#include "npu_train/train/task.hpp"

namespace npu_train::detail {

class KeptBuffers {
 public:
  explicit KeptBuffers(Task& task) : task_(task) {}
  // Copies the buffers as they are now.
  void keep();
  // Puts back what keep() copied; nothing before the first.
  void restore() const;
  // The live buffers, and copies of what is in them now.
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

 private:
  Task& task_;
  std::vector<NamedTensor> buffers_;
  std::vector<at::Tensor> kept_;
};

}  // namespace npu_train::detail
