// Subword models, which convert a word to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/io/json.hpp"
#include "text/vocabulary.hpp"

namespace npu_train::detail {

/// The character that SentencePiece writes for a space. To SentencePiece, a complete text is one word.
inline constexpr std::string_view kSpaceSign = "\xE2\x96\x81";

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of a word, which is valid UTF-8 and not empty.
  virtual void encode(std::string_view word, std::vector<int32_t>& out) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Returns a character before which a word may be divided without changing the word's ids, unless the same character also precedes that
  /// place. Returns "" if there is no such character.
  virtual std::string_view divider() const { return {}; }

 protected:
  Vocabulary vocabulary_;
};

/// Reads the object "model" of tokenizer.json. Error(Data) with the name `where`.
std::unique_ptr<TokenModel> read_token_model(const Json& json, const std::string& where);

std::unique_ptr<TokenModel> read_bpe(const Json& json, const std::string& where);
std::unique_ptr<TokenModel> read_word_piece(const Json& json, const std::string& where);
std::unique_ptr<TokenModel> read_word_level(const Json& json, const std::string& where);
std::unique_ptr<TokenModel> read_unigram(const Json& json, const std::string& where);

/// Adds the members of an object {"token": id, ...}.
void read_vocabulary(Vocabulary& out, const Json& json, const std::string& where);

/// Ids of the tokens "<0x00>" to "<0xFF>", with which a model encodes the bytes of a text that has no token.
class ByteTokens {
 public:
  ByteTokens() = default;
  explicit ByteTokens(const Vocabulary& vocabulary);
  /// Appends an id for each byte. Returns false, and appends nothing, if a byte has no token.
  bool append(std::string_view text, std::vector<int32_t>& out) const;

 private:
  std::vector<int32_t> ids_;  // empty: not in use
};

}  // namespace npu_train::detail
