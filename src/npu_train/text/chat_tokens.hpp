/// The tokens of a chat, and which of them are answers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "npu_train/text/chat_template.hpp"
#include "npu_train/text/tokenizer.hpp"

namespace npu_train::detail {

struct ChatTokens {
  std::vector<int64_t> ids;
  std::vector<std::pair<int64_t, int64_t>> answers;  ///< tokens [begin, end), in order
  /// Whether a token of the undivided text would cross the border of an answer. The text is then divided at that border before it is
  /// tokenized. Generation has the same division, because the model's prompt ends where the answer begins.
  bool divided = false;
};

/// Returns the tokens of the chat's text, without special tokens around it. Error(Data) if the text is not UTF-8.
ChatTokens tokens_of_chat(const Tokenizer& tokenizer, const ChatText& chat);

}  // namespace npu_train::detail
