/// Arguments and results of an operator, as seen in a libtorch callback.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>

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

}  // namespace npu_train::detail
