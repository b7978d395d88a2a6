// Divides a text into the tokens whose scores have the largest sum (Viterbi), for Unigram models (Kudo, "Subword Regularization", ACL
// 2018).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/text/utf8.hpp"
#include "text/vocabulary.hpp"

namespace npu_train::detail {

/// The token for a character that has no token in the vocabulary.
struct UnknownToken {
  int32_t id = kNoToken;  ///< kNoToken: such a character is an Error(Data)
  double score = 0;
};

/// Calls `found(begin, end, id)` for each token of the best path, in order. `score_of(id, bytes)` returns the score of a token as a `Sum`.
/// `Sum` is the type in which scores are added; its rounding decides between paths that are otherwise equally good. The memory depends on
/// the longest part of the text in which tokens overlap, not on the length of the text.
template <class Sum, class Score, class Found>
void best_path(std::string_view text, const TokenTrie& trie, const UnknownToken& unknown, const Score& score_of, const Found& found) {
  // The best path up to a position.
  struct Node {
    Sum score = 0;
    size_t begin = 0;  // start of its last token
    int32_t id = kNoToken;
    bool reached = false;
  };
  std::vector<Node> nodes(1), tokens;
  size_t first = 0;     // position of the first node
  size_t furthest = 0;  // end of the furthest token
  const auto offer = [&](size_t begin, size_t end, Sum score, int32_t id) {
    if (end - first >= nodes.size()) nodes.resize(end - first + 1);
    furthest = std::max(furthest, end);
    auto& node = nodes[end - first];
    if (!node.reached || score > node.score) node = {score, begin, id, true};
  };
  // Passes on the tokens before the position `end`. No token crosses that position, so every path leads through it.
  const auto pass = [&](size_t end) {
    tokens.clear();
    for (size_t at = end; at > first; at = tokens.back().begin) tokens.push_back(nodes[at - first]);
    for (size_t i = tokens.size(); i-- > 0;) found(tokens[i].begin, i == 0 ? end : tokens[i - 1].begin, tokens[i].id);
    nodes[0] = {nodes[end - first].score, end, kNoToken, true};
    nodes.resize(1);
    first = end;
  };
  for (size_t at = 0; at < text.size();) {
    if (at == furthest) pass(at);
    const Sum before = nodes[at - first].score;
    const size_t next = behind_point(text, at);
    bool one_character = false;
    trie.each(text, at, [&](size_t end, int32_t id) {
      offer(at, end, score_of(id, end - at) + before, id);
      one_character |= end == next;
    });
    if (!one_character) {
      check(unknown.id != kNoToken, ErrorKind::Data, "tokenizer", "the vocabulary has no token for '",
            visible_start(text.substr(at, next - at), 4), "', and no unk_id");
      offer(at, next, static_cast<Sum>(unknown.score) + before, unknown.id);
    }
    at = next;
  }
  pass(text.size());
}

}  // namespace npu_train::detail
