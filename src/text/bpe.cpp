// Byte pair encoding (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", ACL 2016): the characters of a word
// are joined in the order of the merges.
#include <algorithm>
#include <optional>
#include <queue>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/json_fields.hpp"
#include "text/token_model.hpp"

namespace npu_train::detail {
namespace {

struct Merge {
  int32_t rank = 0, id = kNoToken;  // position in the list of merges; id of the joined token
};

// A hash table with open addressing. With std::unordered_map, lookups would take most of the time of a merge.
class MergeTable {
 public:
  explicit MergeTable(size_t count) {
    size_t size = 16;
    while (size < 2 * count) size *= 2;
    slots_.resize(size);
  }
  // Returns false if the pair is already in the table.
  bool add(int32_t left, int32_t right, Merge merge) {
    auto& slot = slots_[place(key_of(left, right))];
    if (slot.key != kFree) return false;
    slot = {key_of(left, right), merge};
    return true;
  }
  const Merge* find(int32_t left, int32_t right) const {
    const auto& slot = slots_[place(key_of(left, right))];
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place(uint64_t key) const {
    uint64_t hash = key * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
    const size_t mask = slots_.size() - 1;
    size_t at = static_cast<size_t>(hash) & mask;
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  std::vector<Slot> slots_;
};

class Bpe final : public TokenModel {
 public:
  Bpe(const Json& json, const std::string& where) : merges_(json.at("merges", where).items(where + ".merges").size()) {
    JsonFields fields(json, where);
    fields.unused("type");
    if (const auto* dropout = fields.find("dropout"))
      check(dropout->number(fields.where("dropout")) == 0, ErrorKind::Data, "tokenizer", fields.where("dropout"), " is ",
            dropout->number(fields.where("dropout")), "; allowed: null or 0");
    prefix_ = fields.optional_text("continuing_subword_prefix").value_or("");
    suffix_ = fields.optional_text("end_of_word_suffix").value_or("");
    fuse_unknown_ = fields.flag("fuse_unk", false);
    const bool fallback = fields.flag("byte_fallback", false);
    whole_words_ = fields.flag("ignore_merges", false);
    read_vocabulary(vocabulary_, fields.at("vocab"), fields.where("vocab"));
    if (const auto token = fields.optional_text("unk_token")) {
      unknown_ = vocabulary_.id_of(*token);
      check(unknown_ != kNoToken, ErrorKind::Data, "tokenizer", fields.where("unk_token"), ": '", visible_start(*token, 40),
            "' is not in the vocabulary");
    }
    if (fallback) bytes_ = ByteTokens(vocabulary_);
    const auto& list = fields.at("merges").items(fields.where("merges"));
    for (size_t i = 0; i < list.size(); ++i) add_merge(list[i], static_cast<int32_t>(i), str_cat(fields.where("merges"), "[", i, "]"));
    fields.finish();
    index_characters();
    divides_ = divides_ && !whole_words_ && prefix_.empty() && suffix_.empty() && vocabulary_.id_of(kSpaceSign) != kNoToken;
  }

  std::string_view divider() const override { return divides_ ? kSpaceSign : std::string_view(); }

  void encode(std::string_view word, std::vector<int32_t>& out) const override {
    if (whole_words_) {
      const auto id = vocabulary_.id_of(word);
      if (id != kNoToken) return out.push_back(id);
    }
    std::vector<int32_t> symbols;
    symbols.reserve(word.size());
    append_characters(word, symbols);
    constexpr size_t kFew = 48;
    symbols.size() <= kFew ? merge_few(symbols) : merge_many(symbols);
    out.insert(out.end(), symbols.begin(), symbols.end());
  }

 private:
  // A merge is "left right" or ["left", "right"].
  void add_merge(const Json& json, int32_t rank, const std::string& where) {
    std::string left, right;
    if (json.is_text()) {
      const auto& text = json.text(where);
      if (text.starts_with("#version")) return;  // the first line of GPT-2's list
      const auto space = text.find(' ');
      check(space != std::string::npos && text.find(' ', space + 1) == std::string::npos, ErrorKind::Data, "tokenizer", where, ": '",
            visible_start(text, 80), "'; allowed: two tokens with a space between them");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      const auto& pair = json.items(where);
      check(pair.size() == 2, ErrorKind::Data, "tokenizer", where, ": ", pair.size(), " values; allowed: two tokens");
      left = pair[0].text(where);
      right = pair[1].text(where);
    }
    const auto id_of = [&](const std::string& token) {
      const auto id = vocabulary_.id_of(token);
      check(id != kNoToken, ErrorKind::Data, "tokenizer", where, ": '", visible_start(token, 40), "' is not in the vocabulary");
      return id;
    };
    if (right.starts_with(kSpaceSign) && !left.ends_with(kSpaceSign)) divides_ = false;
    const auto left_id = id_of(left), right_id = id_of(right);
    check(right.size() >= prefix_.size(), ErrorKind::Data, "tokenizer", where, ": '", visible_start(right, 40),
          "' is shorter than continuing_subword_prefix");
    const auto joined = id_of(left + right.substr(prefix_.size()));
    check(joined != left_id && joined != right_id, ErrorKind::Data, "tokenizer", where, ": a token is merged with nothing");
    check(merges_.add(left_id, right_id, {rank, joined}), ErrorKind::Data, "tokenizer", where, ": '", visible_start(left, 40), "' and '",
          visible_start(right, 40), "' are merged twice");
  }

  // Stores the ids of the characters below U+0800 in a table. Most characters of a word are in the table and need no search by text.
  void index_characters() {
    characters_.assign(0x800, kNoToken);
    for (char32_t c = 0; c < characters_.size(); ++c) {
      std::string text;
      append_point(text, c);
      characters_[c] = vocabulary_.id_of(text);
    }
  }

  int32_t character_id(std::string_view character) const {
    size_t at = 0;
    if (character.size() > 2) return vocabulary_.id_of(character);
    return characters_[next_point(character, at)];
  }

  void append_characters(std::string_view word, std::vector<int32_t>& out) const {
    bool unknown = false;  // an unknown token must still be appended
    std::string decorated;
    for (size_t at = 0; at < word.size();) {
      const size_t end = behind_point(word, at);
      auto text = word.substr(at, end - at);
      int32_t id = kNoToken;
      if ((at > 0 && !prefix_.empty()) || (end == word.size() && !suffix_.empty())) {
        decorated = (at > 0 ? prefix_ : "") + std::string(text) + (end == word.size() ? suffix_ : "");
        text = decorated;
        id = vocabulary_.id_of(text);
      } else {
        id = character_id(text);
      }
      at = end;
      // A character without a token becomes its byte tokens or the unknown token. If the model has neither, the character is omitted, as in
      // the package tokenizers.
      if (id != kNoToken) {
        if (unknown) out.push_back(unknown_);
        unknown = false;
        out.push_back(id);
      } else if (!bytes_.append(text, out) && unknown_ != kNoToken) {
        if (unknown && !fuse_unknown_) out.push_back(unknown_);
        unknown = true;
      }
    }
    if (unknown) out.push_back(unknown_);
  }

  // Repeatedly joins the pair with the lowest rank.
  void merge_few(std::vector<int32_t>& symbols) const {
    constexpr int32_t kNever = INT32_MAX;
    std::vector<Merge> next(symbols.size(), Merge{kNever, kNoToken});  // merge of each symbol with the next one
    const auto look_up = [&](size_t i) {
      const auto* merge = i + 1 < symbols.size() ? merges_.find(symbols[i], symbols[i + 1]) : nullptr;
      next[i] = merge == nullptr ? Merge{kNever, kNoToken} : *merge;
    };
    for (size_t i = 0; i < symbols.size(); ++i) look_up(i);
    while (symbols.size() > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < symbols.size(); ++i)
        if (next[i].rank < next[best].rank) best = i;
      if (next[best].rank == kNever) return;
      symbols[best] = next[best].id;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      next.erase(next.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      look_up(best);
      if (best > 0) look_up(best - 1);
    }
  }

  struct Candidate {
    int32_t rank, id;
    size_t at;
    bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };

  // Does the same as merge_few(), in O(n log n) time.
  void merge_many(std::vector<int32_t>& symbols) const {
    const size_t none = symbols.size();
    std::vector<size_t> before(symbols.size()), behind(symbols.size());
    for (size_t i = 0; i < symbols.size(); ++i) {
      before[i] = i == 0 ? none : i - 1;
      behind[i] = i + 1;
    }
    std::priority_queue<Candidate> queue;
    const auto offer = [&](size_t i) {
      if (i == none || behind[i] == none) return;
      if (const auto* merge = merges_.find(symbols[i], symbols[behind[i]])) queue.push({merge->rank, merge->id, i});
    };
    for (size_t i = 0; i < symbols.size(); ++i) offer(i);
    while (!queue.empty()) {
      const auto [rank, id, at] = queue.top();
      queue.pop();
      // The symbols may have changed since this candidate was added.
      if (symbols[at] == kNoToken || behind[at] == none) continue;
      const size_t right = behind[at];
      const auto* merge = merges_.find(symbols[at], symbols[right]);
      if (merge == nullptr || merge->rank != rank) continue;
      symbols[at] = id;
      symbols[right] = kNoToken;
      behind[at] = behind[right];
      if (behind[at] != none) before[behind[at]] = at;
      offer(at);
      offer(before[at]);
    }
    symbols.erase(std::remove(symbols.begin(), symbols.end(), kNoToken), symbols.end());
  }

  std::string prefix_, suffix_;
  int32_t unknown_ = kNoToken;
  bool fuse_unknown_ = false, whole_words_ = false;
  bool divides_ = true;  // a word may be divided before a space (see divider())
  ByteTokens bytes_;
  MergeTable merges_;
  std::vector<int32_t> characters_;  // ids by code point
};

}  // namespace

std::unique_ptr<TokenModel> read_bpe(const Json& json, const std::string& where) { return std::make_unique<Bpe>(json, where); }

}  // namespace npu_train::detail
