#include "cli.hpp"

#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "npu_train/core/error.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/core/visible_text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train::cli {

std::string version_text() {
  std::string out = "npu_train " NPU_TRAIN_VERSION " (libtorch " TORCH_VERSION ";";
  for (const auto* backend : all_backends()) out += " " + backend->name() + (backend->is_available() ? "" : " no") + ",";
  out.back() = ')';
  return out;
}

namespace {

/// Whether the key belongs to the configuration: "seed", "trainer.max_epochs".
bool is_config_key(const std::string& key, const Parts& parts) {
  const auto fields = config_fields(parts);
  const auto section = key.substr(0, key.find('.'));
  return std::any_of(fields.begin(), fields.end(), [&](const FieldInfo& f) { return f.name == section; });
}

}  // namespace

int parse_end(const CLI::App& app, const CLI::ParseError& end, int argc, char** argv, const Parts& parts) {
  std::ostringstream help, message;
  const auto code = app.exit(end, help, message);
  std::fputs(help.str().c_str(), stdout);
  std::fputs(npu_train::detail::visible_lines(message.str()).c_str(), stderr);
  if (code == 0) return written(0);
  const std::string said = end.what();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--") || said.find(word) == std::string::npos) continue;
    auto key = word.substr(2, word.find('=') - 2);
    std::replace(key.begin(), key.end(), '-', '_');  // other programs spell keys with dashes: --batch-size
    const auto full = is_config_key(key, parts) ? key : full_key(key, parts);
    if (full.empty()) continue;
    const bool next = i + 1 < argc && argv[i + 1][0] != '-';
    const auto value = word.size() > key.size() + 2 ? word.substr(key.size() + 2) : next ? std::string("=") + argv[i + 1] : "=...";
    std::fprintf(stderr, "hint: keys of the configuration are given without dashes: %s\n",
                 npu_train::detail::visible_text(full + value).c_str());
    break;
  }
  return static_cast<int>(ErrorKind::Usage);
}

}  // namespace npu_train::cli
