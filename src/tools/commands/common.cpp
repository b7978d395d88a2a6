#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "commands.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/visible_text.hpp"
#include "npu_train/core/wrapped.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "tools/commands/train_app/cli.hpp"

namespace npu_train::cli {

void print(bool json, const Json& document, const std::string& text) {
  errno = 0;
  const auto shown = json ? document.dump() + "\n" : wrapped_lines(npu_train::detail::visible_lines(text), terminal_columns());
  const bool whole = std::fputs(shown.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  check(whole, ErrorKind::Checkpoint, "stdout", "the output could not be written: ", std::strerror(errno));
}

void check_writable(const std::vector<std::string>& files) {
  for (const auto& file : files) {
    if (file.empty()) continue;
    std::error_code error;
    const auto folder = std::filesystem::weakly_canonical(std::filesystem::absolute(file, error), error).parent_path();
    check(error || !std::filesystem::exists(folder / "manifest.json", error), ErrorKind::Usage, "output", file,
          ": is inside a checkpoint, whose files must not change; hint: name a file elsewhere");
    AtomicFile{file};  // creates and removes a temporary file there
  }
}

std::string checkpoint_line(const std::string& checkpoint, const std::string& why, bool averages) {
  if (checkpoint.empty()) return "";
  return "checkpoint " + checkpoint + (why.empty() ? "" : " (" + why + ")") + (averages ? ", averages (EMA)" : "") + "\n";
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
