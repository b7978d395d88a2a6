#include "train/kept_buffers.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

namespace npu_train::detail {

void KeptBuffers::keep() {
  const at::NoGradGuard no_grad;
  if (buffers_.empty()) buffers_ = task_.buffers();
  if (kept_.size() != buffers_.size()) kept_.clear();
  if (kept_.empty())
    for (const auto& [name, buffer] : buffers_) kept_.push_back(at::empty_like(buffer));
  for (size_t i = 0; i < kept_.size(); ++i) kept_[i].copy_(buffers_[i].second);
}

void KeptBuffers::restore() const {
  // through .data(), because autograd may still check the version counter of a buffer that the forward saved
  for (size_t i = 0; i < kept_.size(); ++i) buffers_[i].second.data().copy_(kept_[i]);
}

}  // namespace npu_train::detail
