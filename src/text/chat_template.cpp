#include "npu_train/text/chat_template.hpp"

#include <utility>
#include <vector>

#include "npu_train/core/error.hpp"
#include "text/jinja.hpp"

namespace npu_train {

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
        ": there is no chat_template, by which messages become a text; hint: give the text with --prompt");
  impl_->where = settings.file;
  impl_->nodes = detail::parse_jinja(settings.chat_template, impl_->where);
  const std::pair<const char*, const std::string&> tokens[] = {
      {"bos_token", settings.begin}, {"eos_token", settings.end}, {"pad_token", settings.padding}};
  for (const auto& [name, token] : tokens)
    if (!token.empty()) impl_->variables.set(name, token);
}

std::string ChatTemplate::text(const Json& messages, bool generation_prompt) const {
  for (const auto& message : messages.items("messages")) message.at("role", "messages").text("messages: role");
  auto variables = impl_->variables;
  variables.set("messages", messages);
  variables.set("add_generation_prompt", generation_prompt);
  for (const char* none : {"tools", "documents"}) variables.set(none, Json());
  return detail::render_jinja(impl_->nodes, variables, impl_->where);
}

}  // namespace npu_train
