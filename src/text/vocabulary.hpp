// The tokens of a model, and a search for the tokens at a position of a text.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace npu_train::detail {

inline constexpr int32_t kNoToken = -1;
inline constexpr int64_t kLargestTokenId = (int64_t{1} << 24) - 1;  // limits the table that is indexed by id
inline constexpr size_t kLongestToken = 16384;                      // bytes

/// Tokens with distinct ids. The ids may have gaps.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  /// Error(Data) with the name `where` for an id out of range or used twice, and for a token that is too long.
  void add(std::string token, int64_t id, const std::string& where);

  /// Returns kNoToken for a text that is not a token.
  int32_t id_of(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? kNoToken : found->second;
  }
  /// Returns nullptr for an id without a token.
  const std::string* token_of(int64_t id) const {
    return id < 0 || id >= static_cast<int64_t>(tokens_.size()) ? nullptr : tokens_[static_cast<size_t>(id)];
  }
  size_t count() const { return texts_.size(); }
  /// Returns the largest id + 1.
  int64_t end() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  std::deque<std::string> texts_;
  std::vector<const std::string*> tokens_;  // by id
  std::unordered_map<std::string_view, int32_t> ids_;
};

/// Finds the texts of a set that begin at a position in another text.
class TokenTrie {
 public:
  TokenTrie() = default;
  /// Of equal texts, the last one counts. Empty texts are ignored.
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  bool empty() const { return nodes_.empty(); }

  /// Calls `found(end, value)` for each text of the set that begins at `at`, shortest first.
  template <class Found>
  void each(std::string_view text, size_t at, Found&& found) const {
    if (nodes_.empty()) return;
    for (uint32_t node = 0; at < text.size();) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) return;
      ++at;
      if (nodes_[node].value != kNoToken) found(at, nodes_[node].value);
    }
  }

  /// Returns the end and value of the longest text of the set that begins at `at`; {at, kNoToken} if there is none.
  std::pair<size_t, int32_t> longest(std::string_view text, size_t at) const {
    std::pair<size_t, int32_t> out{at, kNoToken};
    each(text, at, [&](size_t end, int32_t value) { out = {end, value}; });
    return out;
  }

 private:
  struct Node {
    uint32_t children = 0;  // index of the first child; the children are sorted by byte
    uint16_t count = 0;
    unsigned char byte = 0;
    int32_t value = kNoToken;
  };

  // Returns 0 if there is no such child.
  uint32_t child(uint32_t node, unsigned char byte) const {
    if (node == 0) return first_[byte];
    const auto& n = nodes_[node];
    uint32_t low = n.children, high = n.children + n.count;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      nodes_[middle].byte < byte ? low = middle + 1 : high = middle;
    }
    return low < n.children + n.count && nodes_[low].byte == byte ? low : 0;
  }

  std::vector<Node> nodes_;  // the first node is the root
  std::vector<uint32_t> first_;
};

}  // namespace npu_train::detail
