#include "npu_train/nn/model.hpp"

namespace npu_train {

Model chain_blocks(Model model) {
  check(!model.blocks.empty(), ErrorKind::Usage, "chain_blocks", "the model '", model.name, "' has no blocks");
  model.forward = [blocks = model.blocks](const at::Tensor& input) {
    at::Tensor x = input;
    for (const auto& block : blocks) x = block.forward(x);
    return x;
  };
  return model;
}

}  // namespace npu_train
