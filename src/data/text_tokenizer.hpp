// A tokenizer of Hugging Face or SentencePiece and the files next to it, for data sets of texts.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/text/chat_template.hpp"
#include "npu_train/text/chat_tokens.hpp"
#include "npu_train/text/tokenizer.hpp"

namespace npu_train::detail {

class TextTokenizer {
 public:
  explicit TextTokenizer(const std::string& path);

  // Returns the ids without special tokens around them.
  std::vector<int32_t> ids(const std::string& text) const;
  // Returns the id of eos_token. Error(Data) if there is none; `key` is the option that gives another one.
  int64_t end_token(const char* key) const;
  // Returns the chat template, which is parsed at the first call.
  const ChatTemplate& chat() const;
  // Returns the tokens of a chat and of its answers. Error(Data) as for ChatTemplate::with_answers().
  ChatTokens chat_tokens(const Json& messages, Answers which, const std::string& where) const;

 private:
  std::string path_;
  Tokenizer tokenizer_;
  TextSettings settings_;
  mutable std::once_flag parsed_;
  mutable std::optional<ChatTemplate> chat_;
};

}  // namespace npu_train::detail
