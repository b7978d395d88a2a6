#include "npu_train/nn/model.hpp"

#include "npu_train/nn/layer_scope.hpp"

namespace npu_train {

Outputs Forward::operator()(const ForwardContext& context) const {
  check(static_cast<bool>(*this), ErrorKind::Usage, "Model", "the model has no forward");
  return of_context_ ? of_context_(context) : Outputs(of_tensor_(context.batch().input()));
}

at::Tensor Forward::operator()(const at::Tensor& input) const {
  if (of_tensor_) return of_tensor_(input);
  Batch batch;
  batch.set("input", input);
  return (*this)(std::move(batch)).first();
}

Model chain_blocks(Model model) {
  check(!model.blocks.empty(), ErrorKind::Usage, "chain_blocks", "the model '", model.name, "' has no blocks");
  const auto chain = [blocks = model.blocks](const ForwardContext& context, const at::Tensor& input) {
    at::Tensor x = input;
    for (const auto& block : blocks) x = in_layer(block.name, x, [&](const at::Tensor& t) { return block.forward(context, t); });
    return x;
  };
  // With packed documents, the batch has positions in addition to the only input.
  const bool named = model.packs_documents || (model.forward && !model.forward.takes_tensor());
  if (model.inputs.size() <= 1 && !named)
    model.forward = [chain](const at::Tensor& input) { return chain({}, input); };
  else
    model.forward = [chain, first = model.inputs.empty() ? "input" : model.inputs.front().name](const ForwardContext& context) -> Outputs {
      const auto given = std::make_shared<std::vector<Outputs::Field>>();
      at::Tensor last = chain(context.of_network(given), context.batch().at(first));
      return given->empty() ? Outputs(std::move(last)) : Outputs(std::move(*given));
    };
  return model;
}

}  // namespace npu_train
