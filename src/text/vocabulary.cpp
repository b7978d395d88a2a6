#include "text/vocabulary.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"

namespace npu_train::detail {

void Vocabulary::add(std::string token, int64_t id, const std::string& where) {
  check(id >= 0 && id <= kLargestTokenId, ErrorKind::Data, "tokenizer", where, ": the token '", visible_start(token, 40), "' has the id ",
        id, "; allowed: 0 to ", kLargestTokenId);
  check(token.size() <= kLongestToken, ErrorKind::Data, "tokenizer", where, ": the token ", id, " has ", token.size(),
        " bytes; allowed: ", kLongestToken);
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1, nullptr);
  check(tokens_[index] == nullptr, ErrorKind::Data, "tokenizer", where, ": the tokens '",
        tokens_[index] == nullptr ? "" : visible_start(*tokens_[index], 40), "' and '", visible_start(token, 40), "' have the same id ",
        id);
  texts_.push_back(std::move(token));
  const auto [place, is_new] = ids_.emplace(texts_.back(), static_cast<int32_t>(id));
  check(is_new, ErrorKind::Data, "tokenizer", where, ": the token '", visible_start(texts_.back(), 40), "' has the ids ", place->second,
        " and ", id);
  tokens_[index] = &texts_.back();
}

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  // The children of a node are added together, so that they are neighbours.
  std::deque<Range> open{{0, 0, tokens.size(), 0}};
  while (!open.empty()) {
    const auto [node, begin, end, depth] = open.front();
    open.pop_front();
    size_t at = begin;
    for (; at < end && tokens[at].first.size() == depth; ++at)
      if (depth > 0) nodes_[node].value = tokens[at].second;
    nodes_[node].children = static_cast<uint32_t>(nodes_.size());
    while (at < end) {
      const char byte = tokens[at].first[depth];
      const size_t first = at;
      while (at < end && tokens[at].first[depth] == byte) ++at;
      open.push_back({static_cast<uint32_t>(nodes_.size()), first, at, depth + 1});
      nodes_.emplace_back().byte = static_cast<unsigned char>(byte);
      ++nodes_[node].count;
    }
  }
  first_.assign(256, 0);
  for (uint32_t i = 0; i < nodes_[0].count; ++i) first_[nodes_[nodes_[0].children + i].byte] = nodes_[0].children + i;
}

}  // namespace npu_train::detail
