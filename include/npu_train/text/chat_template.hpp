/// Messages of a chat as one text, by the template of a model: chat_template of tokenizer_config.json, in Jinja's language.
///
///   const npu_train::ChatTemplate chat(npu_train::read_text_settings("qwen2"));
///   const std::string text = chat.text(npu_train::parse_json(R"([{"role": "user", "content": "hello"}])", "chat"));
///
/// The language has expressions, `if`, `for`, `set` and the filters and functions that published templates use; docs/language.md lists
/// them. Anything else is an error, with its place. Nothing in a template can read files or run programs.
#pragma once

#include <memory>
#include <string>

#include "npu_train/io/json.hpp"
#include "npu_train/text/text_settings.hpp"

namespace npu_train {

class ChatTemplate {
 public:
  /// Error(Data) with the line for a template that is not supported, and if there is none.
  explicit ChatTemplate(const TextSettings& settings);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Returns the text of a list of objects with `role` and `content`. `generation_prompt`: the text ends where the answer begins.
  /// Error(Data) if the template refuses the messages, and for more than 10 million steps or 64 MiB of text.
  std::string text(const Json& messages, bool generation_prompt = false) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
