#include "npu_train/nn/model.hpp"

#include "npu_train/nn/block_inputs.hpp"
#include "npu_train/nn/layer_scope.hpp"

namespace npu_train {

Outputs Forward::operator()(const Batch& batch) const {
  check(static_cast<bool>(*this), ErrorKind::Usage, "Model", "the model has no forward");
  return of_batch_ ? of_batch_(batch) : Outputs(of_tensor_(batch.input()));
}

at::Tensor Forward::operator()(const at::Tensor& input) const {
  if (of_tensor_) return of_tensor_(input);
  Batch batch;
  batch.set("input", input);
  return (*this)(batch).first();
}

Model chain_blocks(Model model) {
  check(!model.blocks.empty(), ErrorKind::Usage, "chain_blocks", "the model '", model.name, "' has no blocks");
  const auto chain = [blocks = model.blocks](const at::Tensor& input) {
    at::Tensor x = input;
    for (const auto& block : blocks) x = in_layer(block.name, x, block.forward);
    return x;
  };
  const bool named = model.forward && !model.forward.takes_tensor();
  if (model.inputs.size() <= 1 && !named)
    model.forward = [chain](const at::Tensor& input) {
      const BlockInputs none{Batch()};
      return chain(input);
    };
  else
    model.forward = [chain, first = model.inputs.empty() ? "input" : model.inputs.front().name](const Batch& batch) -> Outputs {
      const BlockInputs others(batch);
      at::Tensor last = chain(batch.at(first));
      auto given = others.given();
      return given.fields().empty() ? Outputs(std::move(last)) : given;
    };
  return model;
}

}  // namespace npu_train
