// A forward pass that computes only the shapes of its products.
#pragma once

#include <ATen/ops/empty_strided.h>

#include <optional>
#include <string>
#include <string_view>

#include "npu_train/trace/op_mode.hpp"
#include "npu_train/trace/op_observer.hpp"

namespace npu_train::detail {

/// In its scope, products, convolutions and attention on this thread return tensors of the right shape without content. These operators
/// take nearly all of the time of a pass.
class WithoutProducts final : public OpMode {
 public:
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override {
    if (!is_product(op.schema().name()) || !give_shapes(op, stack)) call_below(op, stack);
  }

 private:
  static bool is_product(const std::string& name) {
    constexpr std::string_view kLibrary = "aten::";
    return name.starts_with(kLibrary) && costs_flops(name.substr(kLibrary.size()));
  }

  static at::Tensor empty_as(const at::Tensor& t, const c10::Device& device) {
    return at::empty_strided(t.sizes(), t.strides(), t.options().device(device).requires_grad(false));
  }

  // Computes only the shapes. Returns false, with an unchanged stack, if libtorch cannot derive them; the operator itself then reports
  // invalid arguments.
  static bool give_shapes(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const NoOpMode below;
    const auto arguments = op.schema().arguments().size();
    torch::jit::Stack on_meta(stack.end() - static_cast<ptrdiff_t>(arguments), stack.end());
    std::optional<c10::Device> device;
    for (auto& value : on_meta)
      if (value.isTensor() && value.toTensor().defined()) {
        if (!device) device = value.toTensor().device();
        value = empty_as(value.toTensor(), c10::kMeta);
      }
    try {
      op.callBoxed(on_meta);
    } catch (const std::exception&) {
      return false;
    }
    torch::jit::drop(stack, arguments);
    for (auto& value : on_meta) stack.emplace_back(empty_as(value.toTensor(), *device));
    return true;
  }

  OpModeGuard guard_{*this};
};

}  // namespace npu_train::detail
