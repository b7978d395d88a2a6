#include <cstdio>

#include "commands.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::cli {

void print(bool json, const Json& document, const std::string& text) {
  std::fputs((json ? document.dump() + "\n" : text).c_str(), stdout);
  std::fflush(stdout);
}

RunConfig checkpoint_config(const std::string& checkpoint, const std::vector<std::string>& overrides, const Parts& parts) {
  auto node = load_checkpoint_config(checkpoint);
  for (const auto& text : overrides) apply_override(node, text);
  return bind_config(node, parts);
}

}  // namespace npu_train::cli
