#include "nn/unmoved.hpp"

#include <algorithm>
#include <string_view>

namespace npu_train::detail {
namespace {

thread_local Unmoved* current = nullptr;

bool is_counter(const at::Tensor& t) { return t.defined() && t.dim() == 0 && t.scalar_type() == at::kLong; }

}  // namespace

Unmoved::Unmoved(const std::vector<at::Tensor>& buffers) : before_(std::exchange(current, this)) {
  for (const auto& b : buffers) keep(b);
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&Unmoved::on_start, nullptr).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

Unmoved::~Unmoved() {
  at::removeCallback(handle_);
  current = before_;
  // through .data(): autograd may hold the version counter of a buffer that the forward saved
  for (auto& [tensor, value] : kept_) tensor.data().copy_(value);
}

void Unmoved::keep(const at::Tensor& t) {
  if (t.defined() && !has(t)) kept_.emplace_back(t, t.detach().clone());
}

bool Unmoved::has(const at::Tensor& t) const {
  return std::any_of(kept_.begin(), kept_.end(), [&](const auto& pair) { return pair.first.is_same(t); });
}

// batch_norm and instance_norm take running_mean and running_var as their fourth and fifth argument, npu_train's own kernel too. Layers
// count their batches by add_ just before; another integer that the function adds to is its own affair.
std::unique_ptr<at::ObserverContext> Unmoved::on_start(const at::RecordFunction& fn) {
  if (current == nullptr) return nullptr;  // a thread that got this one's callbacks
  const std::string_view name = fn.name();
  const auto inputs = fn.inputs();
  if (name == "aten::add_" && inputs[0].isTensor() && is_counter(inputs[0].toTensor()))
    current->counter_ = {inputs[0].toTensor(), inputs[0].toTensor().detach().clone()};
  const bool norm = name == "aten::batch_norm" || name == "aten::instance_norm" || name == "npu_train::batch_norm_act";
  if (norm && inputs.size() > 4) {
    for (const size_t i : {3, 4})
      if (inputs[i].isTensor()) current->keep(inputs[i].toTensor());
    if (auto [counter, value] = std::exchange(current->counter_, {}); counter.defined() && !current->has(counter))
      current->kept_.emplace_back(counter, value);
  }
  return nullptr;
}

}  // namespace npu_train::detail
