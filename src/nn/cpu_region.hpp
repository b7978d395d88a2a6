// Decides whether a kernel may replace a CPU operator in the current autocast region, and in which dtype.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/fp32_ops.hpp"
#include "npu_train/trace/op_mode.hpp"

namespace npu_train::detail {

// Returns whether the operator `op` itself must run, because an observer needs it or a region keeps it in fp32.
inline bool must_be_operator(const char* op) { return in_fp32_ops(op) || in_op_mode(); }

// The effect of the active autocast region on operators. The host program may have opened a region inside ours.
struct CpuRegion {
  std::optional<at::ScalarType> dtype;  // dtype of casts; nullopt if autocast is off
  bool emulated;                        // true: kernels compute in fp32 on rounded values and round their results

  static CpuRegion here() {
    if (!at::autocast::is_autocast_enabled(at::kCPU)) return {std::nullopt, false};
    const auto dtype = at::autocast::get_autocast_dtype(at::kCPU);
    return {dtype, emulated_dtype() == dtype};
  }
  at::Tensor cast(const at::Tensor& t) const { return dtype && t.defined() ? at::autocast::cached_cast(*dtype, t, at::kCPU) : t; }
};

}  // namespace npu_train::detail
