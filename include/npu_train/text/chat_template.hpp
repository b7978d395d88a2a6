/// Messages of a chat as one text, by the template of a model: chat_template of tokenizer_config.json, in Jinja's language.
///
///   const npu_train::ChatTemplate chat(npu_train::read_text_settings("qwen2"));
///   const std::string text = chat.text(npu_train::parse_json(R"([{"role": "user", "content": "hello"}])", "chat"));
///
/// The language has expressions, `if`, `for`, `set` and the filters and functions that published templates use; docs/language.md lists
/// them. Anything else is an error, with its place. Nothing in a template can read files or run programs.
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

// What the files next to a tokenizer say about the texts of a model: tokenizer_config.json, generation_config.json and config.json of
// Hugging Face.

struct TextSettings {
  std::vector<int64_t> end_tokens;  ///< ids that end a generated text: eos_token_id of generation_config.json, or else of config.json
  std::string begin, end, padding;  ///< texts of bos_token, eos_token and pad_token; "": none
  std::string chat_template;        ///< template in Jinja's language that turns messages into a text; "": none
  std::string file;                 ///< file with the template, for messages
};

/// Reads what is there; a file that is missing has no effect. `folder` may be a file in the folder. Error(Data) for a file that is damaged,
/// and for values of other types.
TextSettings read_text_settings(const std::filesystem::path& folder);

// Messages as one text.

/// The text of a chat, and where in it the answers are.
struct ChatText {
  std::string text;
  std::vector<std::pair<size_t, size_t>> answers;  ///< bytes [begin, end) that the assistant has written, in order
};

/// Answers of a chat: the last message, or all messages of the assistant.
enum class Answers { Last, All };

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
  /// Returns the text with the places of its answers. All: what the template writes in `{% generation %}` blocks, as transformers'
  /// return_assistant_tokens_mask does. Last, and All for a template without such blocks: what the template adds to the text of the earlier
  /// messages, which ends with a generation prompt, for a message of the assistant. Error(Data) with the name `where` if it does not only
  /// add to that text, and for more than 1,000 answers. There are no answers in a chat without messages of the assistant, and with Last if
  /// the last message is not one.
  ChatText with_answers(const Json& messages, Answers which, const std::string& where) const;

 private:
  std::string rendered(const Json& messages, bool generation_prompt, std::vector<std::pair<size_t, size_t>>* generated) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
