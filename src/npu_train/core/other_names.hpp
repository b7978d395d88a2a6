/// Names that other programs use for our configuration keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace npu_train {

/// Returns the full keys for a name in Lightning, timm, torchvision, transformers or torch: "optimizer.lr" for "learning_rate". Includes
/// keys that have this name in another section: "trainer.max_epochs" for "max_epochs". Case is ignored, and '-' equals '_'. Empty for an
/// unknown name.
std::vector<std::string> keys_called(std::string_view name);

}  // namespace npu_train
