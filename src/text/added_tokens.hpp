// Added tokens of tokenizer.json: texts that are tokens wherever they occur.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/io/json.hpp"
#include "text/regex.hpp"
#include "text/tokenizer_steps.hpp"
#include "text/vocabulary.hpp"

namespace npu_train::detail {

struct AddedToken {
  std::string content;
  std::string normalized;  ///< form in which the token is searched for and decoded
  int32_t id = kNoToken;
  bool single_word = false, lstrip = false, rstrip = false, in_normalized = false, special = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Reads the list "added_tokens". `normalizer` may be nullptr. Error(Data) with the name `where` if the list is invalid, or if
  /// `vocabulary` has another token with the same id, or another id for the same token.
  AddedTokens(const Json& list, const Vocabulary& vocabulary, const Normalizer* normalizer, const std::string& where);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  /// Return nullptr if there is no such token.
  const AddedToken* find(int64_t id) const;
  const AddedToken* find(std::string_view content) const;

  /// Calls `text` for each part of `whole` without added tokens, and `token` for each added token, in order. Searches only for added tokens
  /// whose `in_normalized` equals `normalized`.
  void divide(std::string_view whole, bool normalized, const std::function<void(std::string_view text, bool first)>& text,
              const std::function<void(int32_t id)>& token) const;

 private:
  bool is_word_before(std::string_view text) const;
  bool is_word_behind(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::map<int64_t, size_t> by_id_;
  std::map<std::string, size_t, std::less<>> by_content_;
  TokenTrie plain_, normalized_;  // values are indices into tokens_
  std::vector<Regex> word_;       // empty, or one pattern that matches a character of a word
};

}  // namespace npu_train::detail
