// Values that a forward may change and that its repetition must not.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace npu_train::detail {

// `buffers` as they are now, put back at the end. Borrows the list.
class Unmoved {
 public:
  explicit Unmoved(const std::vector<at::Tensor>& buffers) : buffers_(buffers) {
    for (const auto& b : buffers) values_.push_back(b.detach().clone());
  }
  ~Unmoved() {
    // through .data(): autograd may hold the version counter of a buffer that the forward saved
    for (size_t i = 0; i < values_.size(); ++i) buffers_[i].data().copy_(values_[i]);
  }
  Unmoved(const Unmoved&) = delete;
  Unmoved& operator=(const Unmoved&) = delete;

 private:
  const std::vector<at::Tensor>& buffers_;
  std::vector<at::Tensor> values_;
};

}  // namespace npu_train::detail
