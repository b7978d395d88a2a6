// The bytes that operators read and write, summed over operators.
#pragma once

#include <cstdint>

#include "npu_train/base/storage.hpp"
#include "npu_train/trace/op_observer.hpp"

namespace npu_train::detail {

// Sums the sizes of inputs and outputs. Views move no bytes.
struct MovedBytes final : OpListener {
  int64_t bytes = 0;
  void op_ended(const SeenOp& op) override {
    const auto* given = storage_of(op.output);
    const bool in_place = op.name.ends_with("_");
    if (given != nullptr && !in_place)
      for (const auto& input : op.tensors)
        if (storage_of(input.value) == given) return;
    for (const auto& input : op.tensors) bytes += size_of(input.value) * (in_place && storage_of(input.value) == given ? 2 : 1);
    if (!in_place)
      for (const auto& output : op.outputs) bytes += size_of(output);
  }
  bool sees_all() const override { return true; }
  static int64_t size_of(const at::Tensor& t) { return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0; }
};

}  // namespace npu_train::detail
