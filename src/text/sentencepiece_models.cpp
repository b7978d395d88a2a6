#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/best_path.hpp"
#include "text/sentencepiece.hpp"

namespace npu_train::detail {
namespace {

// The common part of both models: the vocabulary, and how characters without a piece are encoded.
class PieceModel : public TokenModel {
 protected:
  PieceModel(const SentencePieceFile& file, const std::string& where) : unknown_(file.unknown) {
    types_.reserve(file.pieces.size());
    for (const auto& piece : file.pieces) {
      vocabulary_.add(std::string(piece.text), static_cast<int64_t>(types_.size()), where);
      types_.push_back(piece.type);
      longest_ = std::max(longest_, piece.text.size());
    }
    if (file.byte_fallback) bytes_ = ByteTokens(vocabulary_);
  }

  bool is_user_defined(size_t id) const { return types_[id] == SentencePiece::Type::UserDefined; }
  // Returns whether a text may become this piece.
  bool is_usable(size_t id) const { return types_[id] == SentencePiece::Type::Normal || is_user_defined(id); }
  int32_t usable_id(std::string_view text) const {
    const auto id = text.size() <= longest_ ? vocabulary_.id_of(text) : kNoToken;
    return id != kNoToken && is_usable(static_cast<size_t>(id)) ? id : kNoToken;
  }

  // Appends the piece `id`. For kNoToken, appends the byte pieces of the text or, if the model has none, the unknown piece; successive
  // unknown texts become one unknown piece. `unknown` is whether the previous text was unknown, and is updated.
  void append(int32_t id, std::string_view text, bool& unknown, std::vector<int32_t>& out) const {
    if (id != kNoToken)
      out.push_back(id);
    else if (!bytes_.append(text, out) && !unknown)
      out.push_back(unknown_);
    unknown = id == kNoToken;
  }

  int32_t unknown_;
  std::vector<SentencePiece::Type> types_;  // by id

 private:
  size_t longest_ = 0;  // bytes of the longest piece
  ByteTokens bytes_;
};

// Joins neighbours that together are a piece, the pair with the largest score first; of equal scores, the left pair first.
class PieceBpe final : public PieceModel {
 public:
  PieceBpe(const SentencePieceFile& file, const std::string& where) : PieceModel(file, where), symbols_(user_symbols(file)) {
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      scores_.push_back(file.pieces[id].score);
      if (is_usable(id)) divides_ = divides_ && !has_inner_space(file.pieces[id].text);
    }
    divides_ = divides_ && usable_id(kSpaceSign) != kNoToken;
  }

  std::string_view divider() const override { return divides_ ? kSpaceSign : std::string_view(); }

  void encode(std::string_view word, std::vector<int32_t>& out) const override {
    auto parts = characters(word);
    join(word, parts);
    bool unknown = false;
    for (const auto& part : parts) {
      if (part.size == 0) continue;
      const auto text = word.substr(part.begin, part.size);
      append(usable_id(text), text, unknown, out);
    }
  }

 private:
  struct Part {
    size_t begin, size;     // size 0: joined with the part before it
    size_t before, behind;  // indices of neighbours
    bool whole;             // a user-defined symbol, which is not joined
  };
  struct Pair {
    float score;
    size_t left, right, size;
    bool operator<(const Pair& other) const { return score != other.score ? score < other.score : left > other.left; }
  };

  // Returns whether a space follows a character that is not a space.
  static bool has_inner_space(std::string_view text) {
    while (text.starts_with(kSpaceSign)) text.remove_prefix(kSpaceSign.size());
    return text.find(kSpaceSign) != std::string_view::npos;
  }

  std::vector<Part> characters(std::string_view word) const {
    std::vector<Part> out;
    for (size_t at = 0; at < word.size();) {
      const auto symbol = symbols_.longest(word, at);
      const bool whole = symbol.second != kNoToken;
      const size_t end = whole ? symbol.first : behind_point(word, at);
      out.push_back({at, end - at, out.size() - 1, out.size() + 1, whole});  // `before` of the first part is no index
      at = end;
    }
    return out;
  }

  void join(std::string_view word, std::vector<Part>& parts) const {
    std::priority_queue<Pair> queue;
    const auto offer = [&](size_t left, size_t right) {
      if (left >= parts.size() || right >= parts.size() || parts[left].whole || parts[right].whole) return;
      const size_t size = parts[left].size + parts[right].size;
      const auto id = usable_id(word.substr(parts[left].begin, size));
      if (id != kNoToken) queue.push({scores_[static_cast<size_t>(id)], left, right, size});
    };
    for (size_t i = 1; i < parts.size(); ++i) offer(i - 1, i);
    while (!queue.empty()) {
      const auto pair = queue.top();
      queue.pop();
      auto &left = parts[pair.left], &right = parts[pair.right];
      // The parts may have changed since this pair was added.
      if (left.size == 0 || right.size == 0 || left.size + right.size != pair.size) continue;
      left.size = pair.size;
      left.behind = right.behind;
      if (right.behind < parts.size()) parts[right.behind].before = pair.left;
      right.size = 0;
      offer(left.before, pair.left);
      offer(pair.left, left.behind);
    }
  }

  std::vector<float> scores_;  // by id
  TokenTrie symbols_;          // user-defined symbols
  bool divides_ = true;        // a word may be divided before a space (see divider())
};

class PieceUnigram final : public PieceModel {
 public:
  PieceUnigram(const SentencePieceFile& file, const std::string& where) : PieceModel(file, where) {
    float least = std::numeric_limits<float>::max();
    std::vector<std::pair<std::string_view, int32_t>> pieces;
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const auto& piece = file.pieces[id];
      scores_.push_back(piece.score);
      if (is_usable(id)) pieces.emplace_back(piece.text, static_cast<int32_t>(id));
      if (piece.type != SentencePiece::Type::Normal) continue;
      least = std::min(least, piece.score);
    }
    constexpr float kUnknownPenalty = 10;
    unknown_token_ = {unknown_, least - kUnknownPenalty};
    if (!pieces.empty()) trie_ = TokenTrie(std::move(pieces));
  }

  // Adds scores in float, as SentencePiece does. In a long text, the rounding of the sums decides between divisions that are nearly equally
  // good.
  void encode(std::string_view word, std::vector<int32_t>& out) const override {
    bool unknown = false;
    const auto score_of = [&](int32_t id, size_t bytes) {
      const auto index = static_cast<size_t>(id);
      // For a user-defined symbol, release 0.2.3 of SentencePiece ignores the score in the file and uses this one.
      return is_user_defined(index) ? static_cast<float>(0.1 * static_cast<double>(bytes) - 0.1) : scores_[index];
    };
    best_path<float>(word, trie_, unknown_token_, score_of, [&](size_t begin, size_t end, int32_t id) {
      append(id == unknown_ ? kNoToken : id, word.substr(begin, end - begin), unknown, out);
    });
  }

 private:
  std::vector<float> scores_;  // by id
  UnknownToken unknown_token_;
  TokenTrie trie_;
};

}  // namespace

TokenTrie user_symbols(const SentencePieceFile& file) {
  std::vector<std::pair<std::string_view, int32_t>> out;
  for (const auto& piece : file.pieces)
    if (piece.type == SentencePiece::Type::UserDefined) out.emplace_back(piece.text, 0);
  return TokenTrie(std::move(out));
}

std::unique_ptr<TokenModel> sentencepiece_model(const SentencePieceFile& file, const std::string& where) {
  if (file.bpe) return std::make_unique<PieceBpe>(file, where);
  return std::make_unique<PieceUnigram>(file, where);
}

}  // namespace npu_train::detail
