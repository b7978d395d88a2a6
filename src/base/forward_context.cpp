#include "npu_train/base/forward_context.hpp"

#include <utility>

namespace npu_train {

ForwardContext::ForwardContext(Batch batch, uint64_t draw_key, std::shared_ptr<const Ranks> ranks)
    : batch_(std::make_shared<const Batch>(std::move(batch))),
      draw_key_(draw_key),
      ranks_(std::move(ranks)),
      put_(std::make_shared<Batch>()) {}

ForwardContext ForwardContext::with(Batch batch) const { return {std::move(batch), draw_key_, ranks_}; }

at::Tensor ForwardContext::get(const std::string& name) const {
  if (put_->has(name)) return put_->at(name);
  return batch_->has(name) ? batch_->at(name) : at::Tensor();
}

void ForwardContext::put(const std::string& name, at::Tensor value) const { put_->set(name, std::move(value)); }

void ForwardContext::give(const std::string& name, at::Tensor value) const {
  if (const auto outputs = outputs_.lock()) outputs->emplace_back(name, std::move(value));
}

ForwardContext ForwardContext::of_network(const std::shared_ptr<std::vector<Outputs::Field>>& outputs) const {
  ForwardContext out = *this;
  out.put_ = std::make_shared<Batch>();
  out.outputs_ = outputs;
  return out;
}

}  // namespace npu_train
