#include "dist/divided_masters.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

namespace npu_train::detail {

at::Tensor without_memory(const at::Tensor& like, const at::TensorOptions& options, const std::string& why_not) {
  auto out = at::empty({0}, options);
  out.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  out.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(why_not);
  return out;
}

at::Tensor divided_master(const Parameter& parameter, const at::TensorOptions& options) {
  return without_memory(parameter.value, options,
                        "the master of " + parameter.name + " is divided among the ranks; GradientReducer::gather() gives all of it");
}

void divide_masters(const ParameterSet& parameters, ParameterSet& slices) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& p = parameters[i];
    if (!p.computed.defined()) continue;
    slices[i].value.set_data(slices[i].value.detach().clone());
    p.value.set_data(divided_master(p, p.value.options()));
  }
}

std::vector<at::Tensor> masters_with_memory(const ParameterSet& parameters) {
  std::vector<at::Tensor> out;
  for (const auto& p : parameters) {
    if (p.computed.defined()) p.value.set_data(at::empty_strided(p.value.sizes(), p.value.strides(), p.value.options()));
    out.push_back(p.computed.defined() ? p.value : at::Tensor());
  }
  return out;
}

}  // namespace npu_train::detail
