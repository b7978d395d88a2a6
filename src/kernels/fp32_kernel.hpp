// Shared parts of kernels that compute in fp32 on low-precision tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace npu_train::detail {

// Disables the thread's CPU autocast, so that fp32 operators compute in fp32.
struct WithoutAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::DispatchKey::AutocastCPU};
};

inline at::Tensor widened(const at::Tensor& t) { return t.to(at::kFloat); }
inline std::optional<at::Tensor> widened(const std::optional<at::Tensor>& t) { return t ? std::optional(t->to(at::kFloat)) : t; }
inline at::Tensor rounded(const at::Tensor& t, at::ScalarType dtype) { return t.defined() ? t.to(dtype) : t; }

// Throws Error(Usage) if the backward pass of an emulated operator runs with create_graph.
void refuse_double_backward(const char* op);

}  // namespace npu_train::detail
