// Error feedback: keeps the part of the gradients that compression did not send, until it is added to the gradients of the next window.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace npu_train::detail {

class ErrorFeedback {
 public:
  ErrorFeedback() = default;
  ErrorFeedback(int64_t numel, const at::TensorOptions& options);

  // Begins a window; `unit` rescales the error to the scale of the window's values.
  void begin(double unit) { unit_ = unit; }
  // Begins a window, and returns `values` plus the error as a new tensor.
  at::Tensor added_to(const at::Tensor& values, double unit);
  // Proposes the error of this window, in the scale of this window. It replaces the stored error if the step is taken.
  void propose(at::Tensor left) { proposed_ = std::move(left); }
  // Keeps the stored error of elements whose sum is not used.
  void keep(int64_t begin, int64_t numel);
  void settle(bool taken);

  // Returns the stored error. Code that loads a state may write to this tensor.
  const at::Tensor& value() const { return error_; }

 private:
  at::Tensor error_, proposed_;
  double unit_ = 1;
};

}  // namespace npu_train::detail
