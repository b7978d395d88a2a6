/// Converts the messages of a chat to one text with the model's template, which is written in Jinja's language: the setting `chat_template`
/// of tokenizer_config.json, or the file chat_template.jinja.
///
///   const npu_train::ChatTemplate chat(npu_train::read_text_settings("qwen2"));
///   const std::string text = chat.text(npu_train::parse_json(R"([{"role": "user", "content": "hello"}])", "chat"));
///
/// The language has expressions, `if`, `for`, `set` and the filters and functions that published templates use; docs/language.md lists
/// them. Anything else is an error that names the line. Nothing in a template can read files or run programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train {

// Settings for the texts of a model, from Hugging Face's files next to a tokenizer: tokenizer_config.json, generation_config.json and
// config.json.

struct TextSettings {
  std::vector<int64_t> end_tokens;  ///< ids that end a generated text: eos_token_id of generation_config.json, or else of config.json
  std::string begin, end, padding;  ///< texts of bos_token, eos_token and pad_token; "": none
  std::string chat_template;        ///< template in Jinja's language that turns messages into a text; "": none
  std::string file;                 ///< file with the template; error messages name it
};

/// Reads the files that exist; a missing file has no effect. `folder` may also be a file in the folder. Error(Data) for a damaged file, and
/// for a value of the wrong type.
TextSettings read_text_settings(const std::filesystem::path& folder);

/// The text of a chat, and the positions of its answers.
struct ChatText {
  std::string text;
  std::vector<std::pair<size_t, size_t>> answers;  ///< bytes [begin, end) that the assistant has written, in order
};

/// Answers of a chat: the last message, or all messages of the assistant.
enum class Answers { Last, All };

class ChatTemplate {
 public:
  /// Error(Data) if there is no template, or if the template is not supported. In the second case, the message names the line.
  explicit ChatTemplate(const TextSettings& settings);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Returns the text of a list of objects with `role` and `content`. With `generation_prompt`, the text ends where the next answer begins.
  /// Error(Data) if the template refuses the messages, and for more than 10 million steps or 64 MiB of text.
  std::string text(const Json& messages, bool generation_prompt = false) const;
  /// Returns the text with the positions of its answers. With `Answers::All`, the answers are the texts of the template's
  /// `{% generation %}` blocks, as in transformers' return_assistant_tokens_mask. With `Answers::Last`, and with `Answers::All` if the
  /// template has no such blocks, an answer is the text that a message of the assistant adds to the text of the earlier messages with a
  /// generation prompt. Error(Data) with the name `where` if the template writes earlier messages differently when a message is added, and
  /// for more than 1,000 answers. There are no answers if the chat has no messages of the assistant, or, with `Answers::Last`, if the last
  /// message is not one of the assistant.
  ChatText with_answers(const Json& messages, Answers which, const std::string& where) const;

 private:
  std::string rendered(const Json& messages, bool generation_prompt, std::vector<std::pair<size_t, size_t>>* generated) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
