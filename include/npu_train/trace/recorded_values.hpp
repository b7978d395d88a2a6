/// The arguments and results of an operator that a callback of libtorch sees.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>

namespace npu_train::detail {

/// Without the values below them: an interpreter, as that of TorchScript, calls an operator with its complete stack, which has other values
/// of the program in front of the arguments. A range that no dispatcher runs (RecordedOp) has all that it was given.
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
