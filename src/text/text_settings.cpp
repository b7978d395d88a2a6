#include "npu_train/text/text_settings.hpp"

#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "text/settings_file.hpp"

namespace npu_train {
namespace detail {

std::optional<Json> read_settings_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return load_json(path);
}

const Json* given_setting(const Json& object, const char* key) {
  const auto* found = object.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string special_token(const Json& config, const char* key, const std::string& where) {
  const auto* token = given_setting(config, key);
  if (token == nullptr) return "";
  return token->is_object() ? token->at("content", where + ": " + key).text(where + ": " + key) : token->text(where + ": " + key);
}

}  // namespace detail

namespace {

using detail::given_setting;

// A template is a text, or one of several with a name.
std::string chat_template_of(const Json& config, const std::string& where) {
  const auto* found = given_setting(config, "chat_template");
  if (found == nullptr) return "";
  if (!found->is_array()) return found->text(where + ": chat_template");
  for (const auto& each : found->items(where))
    if (each.at("name", where).text(where) == "default") return each.at("template", where).text(where);
  throw Error(ErrorKind::Data, "chat_template", where + ": none of the templates has the name 'default'");
}

std::vector<int64_t> ids_of_setting(const Json& config, const std::string& where) {
  const auto* found = given_setting(config, "eos_token_id");
  if (found == nullptr) return {};
  if (!found->is_array()) return {found->integer(where + ": eos_token_id")};
  std::vector<int64_t> out;
  for (const auto& id : found->items(where)) out.push_back(id.integer(where + ": eos_token_id"));
  return out;
}

}  // namespace

TextSettings read_text_settings(const std::filesystem::path& folder) {
  std::error_code error;
  const auto place = std::filesystem::is_directory(folder, error) ? folder : folder.parent_path();
  TextSettings out;
  const auto file = [&](const char* name) { return place / name; };
  for (const char* name : {"generation_config.json", "config.json"}) {
    const auto config = detail::read_settings_file(file(name));
    if (config && out.end_tokens.empty()) out.end_tokens = ids_of_setting(*config, file(name).string());
  }
  if (const auto config = detail::read_settings_file(file("tokenizer_config.json"))) {
    const auto where = file("tokenizer_config.json").string();
    out.begin = detail::special_token(*config, "bos_token", where);
    out.end = detail::special_token(*config, "eos_token", where);
    out.padding = detail::special_token(*config, "pad_token", where);
    out.chat_template = chat_template_of(*config, where);
    out.file = where;
  }
  // Newer folders have the template in a file of its own.
  if (std::filesystem::is_regular_file(file("chat_template.jinja"), error)) {
    out.file = file("chat_template.jinja").string();
    out.chat_template = read_file(out.file, uint64_t{1} << 20);
  }
  return out;
}

}  // namespace npu_train
