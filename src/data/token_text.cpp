#include "npu_train/data/token_text.hpp"

#include "npu_train/core/error.hpp"

namespace npu_train {

std::vector<int64_t> byte_tokens(std::string_view text) {
  std::vector<int64_t> out;
  out.reserve(text.size() + 1);
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

std::string document_bytes(std::string_view text, const std::string& source) {
  const auto zero = text.find('\0');
  check(zero == std::string_view::npos, ErrorKind::Data, "tokenize", source, ": byte ", zero,
        " is 0, which no text contains; hint: the file is not text, or is text in UTF-16, which must be converted to UTF-8");
  std::string out(text);
  if (!out.empty()) out += static_cast<char>(kEndOfText);
  return out;
}

std::vector<int64_t> document_tokens(std::string_view text, const std::string& source) { return byte_tokens(document_bytes(text, source)); }

std::string text_of_bytes(const std::vector<int64_t>& tokens) {
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    check(tokens[i] >= 0 && tokens[i] < kByteVocabulary, ErrorKind::Data, "text_of_bytes", "token ", i, " is ", tokens[i],
          "; allowed: 0 to ", kByteVocabulary - 1, "; hint: the tokens are not those of the byte tokenizer");
    if (tokens[i] != kEndOfText) out += static_cast<char>(tokens[i]);
  }
  return out;
}

}  // namespace npu_train
