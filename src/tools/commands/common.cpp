#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::cli {

std::string checkpoint_line(const std::string& checkpoint, const std::string& why, bool averages) {
  if (checkpoint.empty()) return "";
  return "checkpoint " + checkpoint + (why.empty() ? "" : " (" + why + ")") + (averages ? ", averages" : "") + "\n";
}

int64_t size_argument(const char* option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  check(bytes && *bytes > 0, ErrorKind::Usage, option, "'", text, "' is not a size such as 32GiB, 32GB or 512MiB");
  return *bytes;
}

RunConfig checkpoint_config(const std::string& checkpoint, const std::vector<std::string>& overrides, const Parts& parts) {
  auto node = load_checkpoint_config(checkpoint);
  for (const auto& text : overrides) apply_override(node, text);
  return bind_config(node, parts);
}

}  // namespace npu_train::cli
