#include "data/text_tokenizer.hpp"

#include <memory>

#include "npu_train/core/error.hpp"
#include "npu_train/data/documents.hpp"

namespace npu_train {
namespace detail {

TextTokenizer::TextTokenizer(const std::string& path)
    : path_(path), tokenizer_(Tokenizer::load(path)), settings_(read_text_settings(path)) {}

std::vector<int32_t> TextTokenizer::ids(const std::string& text) const {
  const auto ids = tokenizer_.encode(text, /*special_tokens=*/false).ids;
  return {ids.begin(), ids.end()};
}

int64_t TextTokenizer::end_token(const char* key) const {
  const auto id = tokenizer_.id(settings_.end);
  check(!settings_.end.empty() && id, ErrorKind::Data, "tokenizer", path_,
        ": there is no eos_token in a tokenizer_config.json next to the tokenizer; hint: set ", key);
  return *id;
}

const ChatTemplate& TextTokenizer::chat() const {
  std::call_once(parsed_, [&] { chat_.emplace(settings_); });
  return *chat_;
}

ChatTokens TextTokenizer::chat_tokens(const Json& messages, Answers which, const std::string& where) const {
  return tokens_of_chat(tokenizer_, chat().with_answers(messages, which, where));
}

}  // namespace detail

std::shared_ptr<const detail::TextTokenizer> tokenizer_of_texts(const std::string& path) {
  return std::make_shared<detail::TextTokenizer>(path);
}

}  // namespace npu_train
