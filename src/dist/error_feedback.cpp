#include "dist/error_feedback.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>

#include <utility>

namespace npu_train::detail {

ErrorFeedback::ErrorFeedback(int64_t numel, const at::TensorOptions& options) : error_(at::zeros({numel}, options)) {}

at::Tensor ErrorFeedback::added_to(const at::Tensor& values, double unit) {
  begin(unit);
  return at::add(values, error_, unit);
}

void ErrorFeedback::keep(int64_t begin, int64_t numel) {
  if (proposed_.defined() && numel > 0) proposed_.narrow(0, begin, numel).copy_(error_.narrow(0, begin, numel)).mul_(unit_);
}

void ErrorFeedback::settle(bool taken) {
  auto proposed = std::exchange(proposed_, {});
  if (taken && proposed.defined()) error_ = std::move(proposed);
}

}  // namespace npu_train::detail
