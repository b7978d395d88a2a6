/// What other programs call the keys of a configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace npu_train {

/// The keys, with their sections, that Lightning, timm, torchvision, transformers or torch call `name`: "optimizer.lr" for "learning_rate".
/// A key under another section counts too: "trainer.max_epochs" for "max_epochs". Upper and lower case are equal, and so are '-' and '_'.
/// Empty for a name that is not known.
std::vector<std::string> keys_called(std::string_view name);

}  // namespace npu_train
