/// The tensors among an operator's values.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

namespace npu_train::detail {

/// Returns the defined tensors in order, including those in lists and in optional lists (such as the indices of aten::index).
template <class Values>
std::vector<at::Tensor> tensors_of(const Values& values) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) out.push_back(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& t : value.toTensorList())
        if (t.defined()) out.push_back(t);
    if (value.isOptionalTensorList())
      for (const std::optional<at::Tensor> t : value.toOptionalTensorList())
        if (t && t->defined()) out.push_back(*t);
  }
  return out;
}

}  // namespace npu_train::detail
