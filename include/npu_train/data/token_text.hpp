/// The byte tokenizer: each byte of a text is a token. It needs no vocabulary file and can represent every text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train {

inline constexpr int64_t kByteVocabulary = 256;  ///< number of different tokens
inline constexpr int64_t kEndOfText = 0;         ///< ends each document; not allowed in a text

/// Returns the bytes as numbers.
std::vector<int64_t> byte_tokens(std::string_view text);
/// Returns a document: the bytes, then kEndOfText; empty for an empty text. Error(Data) names `source` if the text has a byte 0.
std::string document_bytes(std::string_view text, const std::string& source);
/// Like document_bytes(), as numbers.
std::vector<int64_t> document_tokens(std::string_view text, const std::string& source);
/// Returns the text of tokens, without each kEndOfText. Error(Data) for a token above 255.
std::string text_of_bytes(const std::vector<int64_t>& tokens);

}  // namespace npu_train
