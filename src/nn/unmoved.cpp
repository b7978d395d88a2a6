#include "nn/unmoved.hpp"

#include <algorithm>

namespace npu_train::detail {

Unmoved::Unmoved(const std::vector<at::Tensor>& buffers) {
  for (const auto& b : buffers) keep(b);
}

Unmoved::~Unmoved() {
  // Goes through .data(), because autograd may check the version counter of a buffer that the forward saved.
  for (auto& [tensor, value] : kept_) tensor.data().copy_(value);
}

void Unmoved::keep(const at::Tensor& t) {
  if (t.defined() && !has(t)) kept_.emplace_back(t, t.detach().clone());
}

bool Unmoved::has(const at::Tensor& t) const {
  return std::any_of(kept_.begin(), kept_.end(), [&](const auto& pair) { return pair.first.is_same(t); });
}

void Unmoved::on_norm(const Statistics& s) {
  keep(s.mean);
  keep(s.variance);
  if (s.counter.defined() && !has(s.counter)) kept_.emplace_back(s.counter, s.count);
}

}  // namespace npu_train::detail
