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

/// Returns the value in which each defined tensor is replaced by `map(tensor)`, also in lists and in optional lists.
template <class Map>
c10::IValue with_tensors(const c10::IValue& value, const Map& map) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(map(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& t : value.toTensorList()) out.push_back(t.defined() ? map(t) : t);
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const std::optional<at::Tensor> t : value.toOptionalTensorList())
      out.push_back(t && t->defined() ? std::optional<at::Tensor>(map(*t)) : t);
    return out;
  }
  return value;
}

}  // namespace npu_train::detail
