// Operators that a device must implement itself: creating, viewing and copying tensors.
#include <ATen/EmptyTensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "sim.hpp"

namespace npu_train::sim {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::DeviceGuard guard_for(std::optional<at::Device> device) {
  return c10::DeviceGuard(c10::Device(kType, device && device->has_index() ? device->index() : current_device()));
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const auto guard = guard_for(device);
  return at::detail::empty_generic(sizes, device_allocator(), kKeys, dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const auto guard = guard_for(device);
  return at::detail::empty_strided_generic(sizes, strides, device_allocator(), kKeys, dtype.value_or(at::kFloat));
}

void copy_values(const at::Tensor& from, const at::Tensor& to) {
  const at::Tensor target = on_device(to) ? host_view(to) : to;
  target.copy_(on_device(from) ? host_view(from) : from);
  if (on_device(from) && on_device(to) && from.scalar_type() != to.scalar_type()) saturate(target, to.device().index());
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (!on_device(from) || !on_device(to)) refuse_in_graph("a copy between host and device");
  if (on_device(from) && !on_device(to)) {
    ++sim().host_reads;
    sim().host_read_bytes += from.nbytes();
  }
  auto* graph = recording();
  if (graph != nullptr) {
    graph->will_write(to);
    graph->add([from = on_storage_of(from, from), to = on_storage_of(to, to)] { copy_values(from, to); });
  }
  copy_values(from, to);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& t) {
  refuse_in_graph("a value was read on the host");
  ++sim().host_reads;
  sim().host_read_bytes += t.element_size();
  return at::native::_local_scalar_dense_cpu(host_view(t));
}

at::Tensor as_strided(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<int64_t> offset) {
  auto out = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(t.storage()), t.key_set(), t.dtype());
  out.unsafeGetTensorImpl()->set_storage_offset(offset.value_or(t.storage_offset()));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return out;
}

const at::Tensor& resize(const at::Tensor& t, at::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  const at::Tensor view = host_view(t);
  view.resize_(sizes, format);
  take_over(t, view);
  return t;
}

at::Tensor& set_storage(at::Tensor& t, at::Storage source, int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  t.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  t.unsafeGetTensorImpl()->set_storage_offset(offset);
  if (strides.empty() && !sizes.empty())
    t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  else
    t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return t;
}

at::Tensor& set_whole_storage(at::Tensor& t, at::Storage source) {
  const auto n = static_cast<int64_t>(source.nbytes() / t.dtype().itemsize());
  return set_storage(t, std::move(source), 0, {n}, {1});
}

at::Tensor& set_tensor(at::Tensor& t, const at::Tensor& source) {
  return set_storage(t, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

// Selects the host's attention kernel, because the device runs on the host's kernels.
int64_t attention_choice(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask,
                         double dropout, bool causal, std::optional<double> scale, bool grouped) {
  const auto host = [](const at::Tensor& t) { return on_device(t) ? host_view(t).requires_grad_(t.requires_grad()) : t; };
  const auto host_mask = mask ? std::optional(host(*mask)) : mask;
  return at::_fused_sdp_choice(host(q), host(k), host(v), host_mask, dropout, causal, scale, grouped);
}

// The form of convolution that traced TorchScript modules and libtorch's second derivative of a convolution call. Its general kernel is
// implemented for the host alone. The last four arguments are settings of cuDNN.
at::Tensor convolution_of_scripts(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                  at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                  at::IntArrayRef output_padding, int64_t groups, bool, bool, bool, bool) {
  return at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

// module->to(device) calls this operator for every parameter; libtorch has no kernel of it for this key.
bool compatible(const at::Tensor&, const at::Tensor&) { return true; }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("_convolution", TORCH_FN(convolution_of_scripts));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("resize_", TORCH_FN(resize));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  m.impl("set_.source_Storage", TORCH_FN(set_whole_storage));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
}

// _copy_from resolves lazy conjugation and negation itself. libtorch would resolve them first, by this same copy, in an infinite recursion.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("_has_compatible_shallow_copy_type", TORCH_FN(compatible)); }

}  // namespace npu_train::sim

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &npu_train::sim::attention_choice)
}
