// Many words found in one pass over a text, whatever its case (Aho and Corasick 1975).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train::detail {

class PatternMatcher {
 public:
  // In lower case; ASCII letters of a text match in either case. At most 65,535 bytes and 127 different ones.
  explicit PatternMatcher(const std::vector<std::string>& patterns);

  // Calls found(pattern index, place of its first byte) for every occurrence, in the order of their last bytes.
  template <class Fn>
  void each(std::string_view text, Fn&& found) const {
    uint16_t state = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      state = next_[state][column_[static_cast<unsigned char>(text[i])]];
      if (stops_[state] == 0) continue;
      for (auto s = state; s != 0; s = shorter_[s])
        for (const auto pattern : here_[s]) found(pattern, i + 1 - lengths_[pattern]);
    }
  }

 private:
  void link_states();

  std::array<uint8_t, 256> column_{};  // of a byte; 0: in no pattern. Few columns keep the table in the cache
  std::vector<std::array<uint16_t, 128>> next_;
  std::vector<uint8_t> stops_;             // whether a pattern ends in this state, or in a shorter one
  std::vector<uint16_t> shorter_;          // the nearest state with a pattern that ends here too; 0: none
  std::vector<std::vector<size_t>> here_;  // patterns that end in a state
  std::vector<size_t> lengths_;
};

}  // namespace npu_train::detail
