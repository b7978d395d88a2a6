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
  const auto same = [&](const auto& pair) { return pair.first.is_same(t); };
  if (t.defined() && std::none_of(kept_.begin(), kept_.end(), same)) kept_.emplace_back(t, t.detach().clone());
}

// batch_norm and instance_norm take running_mean and running_var as their fourth and fifth argument, npu_train's own kernel too; a layer of
// libtorch counts its batches by add_.
std::unique_ptr<at::ObserverContext> Unmoved::on_start(const at::RecordFunction& fn) {
  const std::string_view name = fn.name();
  const auto inputs = fn.inputs();
  const bool norm = name == "aten::batch_norm" || name == "aten::instance_norm" || name == "npu_train::batch_norm_act";
  if (norm && inputs.size() > 4) {
    for (const size_t i : {3, 4})
      if (inputs[i].isTensor()) current->keep(inputs[i].toTensor());
  }
  if (name == "aten::add_" && inputs[0].isTensor() && is_counter(inputs[0].toTensor())) current->keep(inputs[0].toTensor());
  return nullptr;
}

}  // namespace npu_train::detail
