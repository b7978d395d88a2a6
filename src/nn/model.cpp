#include "npu_train/nn/model.hpp"

#include "npu_train/nn/layer_scope.hpp"

namespace npu_train {

Model chain_blocks(Model model) {
  check(!model.blocks.empty(), ErrorKind::Usage, "chain_blocks", "the model '", model.name, "' has no blocks");
  model.forward = [blocks = model.blocks](const at::Tensor& input) {
    at::Tensor x = input;
    for (const auto& block : blocks) x = in_layer(block.name, x, block.forward);
    return x;
  };
  return model;
}

}  // namespace npu_train
