#include "text/added_tokens.hpp"

#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/json_fields.hpp"
#include "text/unicode.hpp"

namespace npu_train::detail {
namespace {

AddedToken read_token(const Json& json, const std::string& where) {
  JsonFields fields(json, where);
  AddedToken out;
  out.id = static_cast<int32_t>(fields.integer("id", 0, kLargestTokenId));
  out.content = fields.text("content");
  out.single_word = fields.flag("single_word");
  out.lstrip = fields.flag("lstrip");
  out.rstrip = fields.flag("rstrip");
  out.in_normalized = fields.flag("normalized");
  out.special = fields.flag("special");
  fields.finish();
  check(!out.content.empty() && out.content.size() <= kLongestToken, ErrorKind::Data, "tokenizer", where, ": the content has ",
        out.content.size(), " bytes; allowed: 1 to ", kLongestToken);
  return out;
}

// Returns the position after which there is only white space.
size_t end_of_words(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();)
    if (!is_white_space(next_point(text, at))) end = at;
  return end;
}

size_t begin_of_words(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!is_white_space(next_point(text, at))) return begin;
  }
  return text.size();
}

}  // namespace

AddedTokens::AddedTokens(const Json& list, const Vocabulary& vocabulary, const Normalizer* normalizer, const std::string& where) {
  const auto& items = list.items(where);
  tokens_.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const auto place = str_cat(where, "[", i, "]");
    auto token = read_token(items[i], place);
    const auto* other = vocabulary.token_of(token.id);
    const auto known = vocabulary.id_of(token.content);
    check((known == kNoToken || known == token.id) && (other == nullptr || *other == token.content), ErrorKind::Data, "tokenizer", place,
          ": '", visible_start(token.content, 40), "' has the id ", token.id, ", and the vocabulary has ",
          other != nullptr && known != token.id ? "another token with it" : "another id for it");
    token.normalized = token.in_normalized && normalizer != nullptr ? normalizer->normalized(token.content) : token.content;
    check(!token.normalized.empty(), ErrorKind::Data, "tokenizer", place, ": nothing is left of '", visible_start(token.content, 40),
          "' when it is normalised");
    const bool is_new = by_id_.emplace(token.id, i).second && by_content_.emplace(token.content, i).second;
    check(is_new, ErrorKind::Data, "tokenizer", place, ": the id ", token.id, " or the content '", visible_start(token.content, 40),
          "' occurs twice");
    if (token.single_word && word_.empty()) word_.emplace_back("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]", place);
    tokens_.push_back(std::move(token));
  }
  std::vector<std::pair<std::string_view, int32_t>> plain, normalized;
  for (size_t i = 0; i < tokens_.size(); ++i)
    (tokens_[i].in_normalized ? normalized : plain).emplace_back(tokens_[i].normalized, static_cast<int32_t>(i));
  if (!plain.empty()) plain_ = TokenTrie(std::move(plain));
  if (!normalized.empty()) normalized_ = TokenTrie(std::move(normalized));
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

bool AddedTokens::is_word_before(std::string_view text) const {
  size_t begin = text.size();
  while (begin > 0 && (static_cast<unsigned char>(text[--begin]) & 0xC0) == 0x80) {
  }
  return begin < text.size() && is_word_behind(text.substr(begin));
}

bool AddedTokens::is_word_behind(std::string_view text) const {
  if (text.empty()) return false;
  Span match;
  return Matches(word_.front(), text.substr(0, behind_point(text, 0))).next(match);
}

void AddedTokens::divide(std::string_view whole, bool normalized, const std::function<void(std::string_view, bool)>& text,
                         const std::function<void(int32_t)>& token) const {
  const auto& trie = normalized ? normalized_ : plain_;
  size_t begin = 0;  // start of the text that was not passed on yet
  for (size_t at = 0; !trie.empty() && at < whole.size();) {
    const auto [end, index] = trie.longest(whole, at);
    if (index == kNoToken) {
      ++at;
      continue;
    }
    const auto& found = tokens_[static_cast<size_t>(index)];
    const bool apart = !found.single_word || (!is_word_before(whole.substr(0, at)) && !is_word_behind(whole.substr(end)));
    const size_t match = at;
    at = end;
    if (!apart) continue;
    const size_t first = found.lstrip && match > begin ? begin + end_of_words(whole.substr(begin, match - begin)) : match;
    const size_t last = found.rstrip ? end + begin_of_words(whole.substr(end)) : end;
    if (first > begin) text(whole.substr(begin, first - begin), begin == 0);
    token(found.id);
    begin = last;
  }
  if (begin < whole.size()) text(whole.substr(begin), begin == 0);
}

}  // namespace npu_train::detail
