// WordPiece (Schuster and Nakajima, 2012, as in BERT), which takes the longest token at each position of a word, and WordLevel, which has
// one token for each word.
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "text/json_fields.hpp"
#include "text/token_model.hpp"

namespace npu_train::detail {
namespace {

int32_t unknown_of(const Vocabulary& vocabulary, const std::string& token) { return vocabulary.id_of(token); }

[[noreturn]] void refuse_word(std::string_view word, const std::string& unknown) {
  throw Error(
      ErrorKind::Data, "tokenizer",
      str_cat("the word '", visible_start(word, 40), "' has no tokens, and the vocabulary has no '", visible_start(unknown, 40), "'"));
}

class WordPiece final : public TokenModel {
 public:
  WordPiece(const Json& json, const std::string& where) {
    JsonFields fields(json, where);
    fields.unused("type");
    unknown_token_ = fields.text("unk_token");
    const auto prefix = fields.text("continuing_subword_prefix");
    longest_word_ = static_cast<size_t>(fields.integer("max_input_chars_per_word", 0, 1 << 20));
    read_vocabulary(vocabulary_, fields.at("vocab"), fields.where("vocab"));
    fields.finish();
    unknown_ = unknown_of(vocabulary_, unknown_token_);
    std::vector<std::pair<std::string_view, int32_t>> first, next;
    for (int64_t id = 0; id < vocabulary_.end(); ++id) {
      const auto* token = vocabulary_.token_of(id);
      if (token == nullptr) continue;
      first.emplace_back(*token, static_cast<int32_t>(id));
      if (token->starts_with(prefix)) next.emplace_back(std::string_view(*token).substr(prefix.size()), static_cast<int32_t>(id));
    }
    first_ = TokenTrie(std::move(first));
    next_ = TokenTrie(std::move(next));
  }

  void encode(std::string_view word, std::vector<int32_t>& out) const override {
    const auto size = out.size();
    bool known = code_points(word) <= longest_word_;
    for (size_t at = 0; known && at < word.size();) {
      const auto [end, id] = (at == 0 ? first_ : next_).longest(word, at);
      known = id != kNoToken;
      out.push_back(id);
      at = end;
    }
    if (known) return;
    out.resize(size);
    if (unknown_ == kNoToken) refuse_word(word, unknown_token_);
    out.push_back(unknown_);
  }

 private:
  std::string unknown_token_;
  int32_t unknown_ = kNoToken;
  size_t longest_word_ = 0;
  TokenTrie first_, next_;  // tokens at the beginning of a word, and later in a word
};

class WordLevel final : public TokenModel {
 public:
  WordLevel(const Json& json, const std::string& where) {
    JsonFields fields(json, where);
    fields.unused("type");
    unknown_token_ = fields.text("unk_token");
    read_vocabulary(vocabulary_, fields.at("vocab"), fields.where("vocab"));
    fields.finish();
    unknown_ = unknown_of(vocabulary_, unknown_token_);
  }

  void encode(std::string_view word, std::vector<int32_t>& out) const override {
    const auto id = vocabulary_.id_of(word);
    if (id == kNoToken && unknown_ == kNoToken) refuse_word(word, unknown_token_);
    out.push_back(id == kNoToken ? unknown_ : id);
  }

 private:
  std::string unknown_token_;
  int32_t unknown_ = kNoToken;
};

}  // namespace

std::unique_ptr<TokenModel> read_word_piece(const Json& json, const std::string& where) { return std::make_unique<WordPiece>(json, where); }
std::unique_ptr<TokenModel> read_word_level(const Json& json, const std::string& where) { return std::make_unique<WordLevel>(json, where); }

}  // namespace npu_train::detail
