#include "npu_train/nn/layer_scope.hpp"

#include "npu_train/trace/recorded_op.hpp"

namespace npu_train {

LayerScope::LayerScope(const std::string& name, const std::vector<at::Tensor>& inputs) {
  constexpr auto scope = at::RecordScope::USER_SCOPE;
  if (!at::getStepCallbacksUnlessEmpty(scope).has_value()) return;
  record_ = std::make_unique<detail::RecordedOp>(
      name, [&] { return std::vector<c10::IValue>(inputs.begin(), inputs.end()); }, scope);
}

LayerScope::~LayerScope() = default;

at::Tensor LayerScope::result(at::Tensor y) { return record_ ? record_->result(std::move(y)) : y; }

at::Tensor named_value(const std::string& name, const at::Tensor& value) {
  if (!at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value()) return value;
  return LayerScope(name + std::string(detail::kNamedValue), {value}).result(value);
}

at::Tensor in_layer(const std::string& name, const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward) {
  if (name.empty()) return forward(x);
  LayerScope scope(name, {x});
  return scope.result(forward(x));
}

}  // namespace npu_train
