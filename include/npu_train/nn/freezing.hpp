/// Freezes parameters while others are trained.
#pragma once

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace npu_train {

/// Freezes the parameters (requires_grad = false) that match a pattern (name_pattern.hpp: "token_embedding", "blocks.0", "*.bias") and
/// returns their names in order of registration. Error(Usage), without a change, for a pattern that matches no parameter (the message lists
/// some names), and if no trainable parameter would remain. Running statistics of a frozen normalisation layer still follow the data in
/// training mode, as in PyTorch.
std::vector<std::string> freeze_parameters(torch::nn::Module& module, const std::vector<std::string>& patterns);

}  // namespace npu_train
