#include "npu_train/text/chat_template.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>

#include "npu_train/core/error.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "text/jinja.hpp"
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

// The setting is one template or a list of named templates, of which the one with the name "default" is used.
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

namespace {

constexpr const char* kMarkAnswers = "; hint: put what the assistant writes into {% generation %} blocks of the template";
// Limit on the answers of a chat. For each answer, the text and the tokens of all earlier messages may be computed again, which would take
// hours for a file with one very long chat.
constexpr std::ptrdiff_t kMostAnswers = 1000;

void check_number(std::ptrdiff_t answers, const std::string& where) {
  check(answers <= kMostAnswers, ErrorKind::Data, "chat_template", where, ": the chat has ", answers, " answers; allowed: at most ",
        kMostAnswers, "; hint: divide it into several chats");
}

}  // namespace

struct ChatTemplate::Impl {
  std::string where;
  std::vector<detail::JinjaNode> nodes;
  Json variables = Json::object();
};

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate::ChatTemplate(const TextSettings& settings) : impl_(std::make_unique<Impl>()) {
  check(!settings.chat_template.empty(), ErrorKind::Data, "chat_template",
        settings.file.empty() ? "there is no tokenizer_config.json" : settings.file,
        ": there is no chat_template, by which messages become a text; hint: a tokenizer folder whose tokenizer_config.json or "
        "chat_template.jinja has one");
  impl_->where = settings.file;
  impl_->nodes = detail::parse_jinja(settings.chat_template, impl_->where);
  const std::pair<const char*, const std::string&> tokens[] = {
      {"bos_token", settings.begin}, {"eos_token", settings.end}, {"pad_token", settings.padding}};
  for (const auto& [name, token] : tokens)
    if (!token.empty()) impl_->variables.set(name, token);
}

std::string ChatTemplate::text(const Json& messages, bool generation_prompt) const {
  return rendered(messages, generation_prompt, nullptr);
}

ChatText ChatTemplate::with_answers(const Json& messages, Answers which, const std::string& where) const {
  ChatText out;
  if (which == Answers::All && detail::has_generation(impl_->nodes)) {
    out.text = rendered(messages, /*generation_prompt=*/false, &out.answers);
    check_number(std::ssize(out.answers), where);
    return out;
  }
  out.text = text(messages);
  const auto& list = messages.items(where);
  const auto size = list.size();
  const auto is_answer = [&](const Json& message) { return message.at("role", where).text(where) == "assistant"; };
  if (which == Answers::All) check_number(std::count_if(list.begin(), list.end(), is_answer), where);
  const char* hint = which == Answers::All ? kMarkAnswers : "";
  const auto first = [&](size_t count) {
    return Json::array(std::vector<Json>(list.begin(), std::next(list.begin(), static_cast<std::ptrdiff_t>(count))));
  };
  const auto prompt = [&](size_t count) {
    try {
      return text(first(count), /*generation_prompt=*/true);
    } catch (const Error& e) {
      if (count > 0) throw;
      const auto words = str_cat(where, ": message 1 is an answer, and without messages there is no prompt (", e.message(), ")", hint);
      throw Error(e.kind(), "chat_template", words, "", std::current_exception());
    }
  };
  for (size_t i = which == Answers::Last && size > 0 ? size - 1 : 0; i < size; ++i) {
    if (!is_answer(list[i])) continue;
    const auto before = prompt(i), with = i + 1 < size ? text(first(i + 1)) : out.text;
    const auto end_of_last = out.answers.empty() ? size_t{0} : out.answers.back().second;
    check(before.size() >= end_of_last && with.starts_with(before), ErrorKind::Data, "chat_template", where,
          ": the chat template writes the messages before message ", i + 1,
          " differently when that answer is missing, so that the answer has no beginning", hint);
    check(out.text.starts_with(with), ErrorKind::Data, "chat_template", where, ": the chat template writes message ", i + 1,
          ", an answer, differently when others follow, so that the answer has no end", hint);
    out.answers.emplace_back(before.size(), with.size());
  }
  return out;
}

std::string ChatTemplate::rendered(const Json& messages, bool generation_prompt, std::vector<std::pair<size_t, size_t>>* generated) const {
  const auto& all = messages.items("messages");
  for (size_t i = 0; i < all.size(); ++i) {
    const auto where = str_cat("messages, message ", i + 1);
    all[i].at("role", where).text(where + ": role");
  }
  auto variables = impl_->variables;
  variables.set("messages", messages);
  variables.set("add_generation_prompt", generation_prompt);
  for (const char* none : {"tools", "documents"}) variables.set(none, Json());
  return detail::render_jinja(impl_->nodes, variables, impl_->where, generated);
}

}  // namespace npu_train
