// What compression does not send, until it is added to the gradients of the next window.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace npu_train::detail {

class CarriedError {
 public:
  CarriedError() = default;
  CarriedError(int64_t numel, const at::TensorOptions& options);

  // Of this window: one unit of the error is `unit` of its values.
  void begin(double unit) { unit_ = unit; }
  // A new tensor: `values` of a window that begins, and the error.
  at::Tensor added_to(const at::Tensor& values, double unit);
  // The error of this window, in its unit. It replaces the error if the step is taken.
  void propose(at::Tensor left) { proposed_ = std::move(left); }
  // Of these elements nothing was used: their error stays what it was.
  void keep(int64_t begin, int64_t numel);
  void settle(bool taken);

  // May be written by who loads a state.
  const at::Tensor& value() const { return error_; }

 private:
  at::Tensor error_, proposed_;
  double unit_ = 1;
};

}  // namespace npu_train::detail
