#include "device/float_status.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <string>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

// Calls an operator with default values for all arguments after the tensor, because these arguments differ between versions of torch_npu.
at::Tensor call(const char* name, const at::Tensor& self) {
  const auto op = c10::Dispatcher::singleton().findSchema({std::string("npu::") + name, ""});
  check(op.has_value(), ErrorKind::Device, "device npu", "this torch_npu has no operator npu::", name,
        ", without which an overflow is not seen on this chip");
  torch::jit::Stack stack{self};
  const auto& arguments = op->schema().arguments();
  for (size_t i = 1; i < arguments.size(); ++i) stack.push_back(arguments[i].default_value().value_or(c10::IValue()));
  op->callBoxed(&stack);
  return stack.front().toTensor();
}

at::Tensor buffer(const c10::Device& device) {
  return call("npu_alloc_float_status", at::empty({8}, at::TensorOptions().dtype(at::kFloat).device(device)));
}

}  // namespace

bool float_status(const c10::Device& device) {
  const c10::DeviceGuard guard(device);
  return call("npu_get_float_status", buffer(device)).cpu().select(0, 0).item<double>() != 0;
}

void clear_float_status(const c10::Device& device) {
  const c10::DeviceGuard guard(device);
  call("npu_clear_float_status", buffer(device));
}

}  // namespace npu_train::detail
