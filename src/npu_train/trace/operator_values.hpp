/// Arguments and results of an operator, as seen in a libtorch callback or as values of the dispatcher, and the tensors among them.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace npu_train::detail {

/// Returns only the arguments. An interpreter, such as TorchScript's, passes its complete stack, on which other values of the program
/// precede the arguments. A range that bypasses the dispatcher (RecordedOp) has only its own inputs.
inline c10::ArrayRef<const c10::IValue> arguments_of(const at::RecordFunction& fn) {
  const auto values = fn.inputs();
  const auto count = fn.num_inputs();
  return count > 0 && count < values.size() ? values.slice(values.size() - count) : values;
}

inline c10::ArrayRef<const c10::IValue> results_of(const at::RecordFunction& fn) {
  const auto& values = fn.outputs();
  const c10::ArrayRef<const c10::IValue> all(values.data(), values.size());
  const auto count = fn.num_outputs();
  return count > 0 && count < all.size() ? all.slice(all.size() - count) : all;
}

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
