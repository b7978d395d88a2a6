#include "cli.hpp"

#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/core/version.hpp"
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

// Returns the subcommand that was read last, or the program.
const CLI::App& innermost(const CLI::App& app) {
  const auto* out = &app;
  while (!out->get_subcommands().empty()) out = out->get_subcommands().front();
  return *out;
}

// Returns a hint if an option that does not exist is a key of the configuration, which other programs spell with dashes: --batch-size 8.
std::string hint_of_keys(const std::string& said, const std::vector<std::string>& words, const Parts& parts) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--") || said.find(words[i]) == std::string::npos) continue;
    auto key = words[i].substr(2, words[i].find('=') - 2);
    std::replace(key.begin(), key.end(), '-', '_');
    const bool next = i + 1 < words.size() && !words[i + 1].starts_with("-");
    const auto value = words[i].size() > key.size() + 2 ? words[i].substr(key.size() + 2) : next ? "=" + words[i + 1] : "=...";
    if (key == "config")
      return "the file of the configuration is given without an option: " + (value == "=..." ? "CONFIG.yaml" : value.substr(1));
    const auto full = is_config_key(key, parts) ? key : full_key(key, parts);
    if (!full.empty()) return "keys of the configuration are given without dashes: " + full + value;
  }
  return "";
}

// Returns a hint if a word of the command line resembles an option or a subcommand of the subcommand that was read.
std::string hint_of_names(const std::vector<std::string>& words, const CLI::App& app) {
  std::vector<std::string> options, subcommands;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) options.push_back("--" + name);
  for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) subcommands.push_back(sub->get_name());
  for (const auto& word : words) {
    const auto name = word.substr(0, word.find('='));
    const auto meant = nearest_name(name, word.starts_with("-") ? options : subcommands);
    if (!meant.empty() && meant != name) return "did you mean '" + meant + "'?";
  }
  return "";
}

}  // namespace

int parse_end(const CLI::App& app, const CLI::ParseError& end, int argc, char** argv, const Parts& parts) {
  std::ostringstream help, message;
  const auto code = app.exit(end, help, message);
  std::fputs(help.str().c_str(), stdout);
  std::fputs(npu_train::detail::visible_lines(message.str()).c_str(), stderr);
  if (code == 0) return written(0);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto& read = innermost(app);
  const bool takes_keys = read.get_option_no_throw("config") != nullptr || read.get_option_no_throw("overrides") != nullptr;
  auto hint = takes_keys ? hint_of_keys(end.what(), words, parts) : "";
  const bool misses_a_name =
      code == static_cast<int>(CLI::ExitCodes::ExtrasError) || code == static_cast<int>(CLI::ExitCodes::RequiredError);
  if (hint.empty() && misses_a_name) hint = hint_of_names(words, read);
  if (!hint.empty()) std::fprintf(stderr, "hint: %s\n", npu_train::detail::visible_text(hint).c_str());
  return static_cast<int>(ErrorKind::Usage);
}

}  // namespace npu_train::cli
