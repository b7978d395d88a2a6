// What kernels share that compute in fp32 on tensors of low precision.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace npu_train::detail {

// The thread's autocast of the CPU off: fp32 operators stay what they are.
struct WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::DispatchKey::AutocastCPU};
};

inline at::Tensor widened(const at::Tensor& t) { return t.to(at::kFloat); }
inline std::optional<at::Tensor> widened(const std::optional<at::Tensor>& t) { return t ? std::optional(t->to(at::kFloat)) : t; }
inline at::Tensor rounded(const at::Tensor& t, at::ScalarType dtype) { return t.defined() ? t.to(dtype) : t; }

// Error(Usage) in the backward pass of an emulated operator if a graph of that pass is requested (create_graph).
void refuse_double_backward(const char* op);

}  // namespace npu_train::detail
