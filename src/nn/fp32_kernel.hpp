// What kernels share that are no operators: they take fp32, or low precision as an emulated operator does.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

#include "nn/op_mode.hpp"
#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/fp32_ops.hpp"

namespace npu_train::detail {

// Whether the operator `op` itself must run, for who watches or keeps it in fp32.
inline bool must_be_operator(const char* op) { return in_fp32_ops(op) || in_op_mode(); }

// `t` in the emulated precision of this region, if there is one.
inline at::Tensor cast_if_emulated(const at::Tensor& t) {
  const auto low = emulated_dtype();
  return low && t.defined() ? at::autocast::cached_cast(*low, t, at::kCPU) : t;
}

// Whether `t` is of the one type that such a kernel takes in this region; none where another autocast is on.
inline bool has_kernel_dtype(const at::Tensor& t) {
  const auto dtype = at::autocast::is_autocast_enabled(at::kCPU) ? emulated_dtype() : at::kFloat;
  return t.scalar_type() == dtype;
}

inline at::Tensor widened(const at::Tensor& t) { return t.to(at::kFloat); }

}  // namespace npu_train::detail
