// Small parsers for texts that systems provide, and a search for many patterns. The parsers do not throw for any input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/core/message_text.hpp"

namespace npu_train::detail {

// Splits at separators and keeps empty parts. Returns at most 100,000 parts; the last one then contains the rest of the text.
std::vector<std::string> split(std::string_view text, char separator);
// Splits at runs of blanks.
std::vector<std::string> words(std::string_view text);
std::string trimmed(std::string_view text);

// Returns the value of a line "key<separator> value", without surrounding blanks: cpuinfo, meminfo, version.info, os-release (quotes are
// removed). nullopt without such a line.
std::optional<std::string> value_of(std::string_view text, std::string_view key, char separator);

// Parses a complete decimal number, surrounded only by blanks.
std::optional<int64_t> whole_number(std::string_view text);
// Parses the number at the start of the text.
std::optional<int64_t> leading_number(std::string_view text);

// Parses a list of CPUs or nodes, "0-3,8,10-11". Returns nullopt for other text, and for more than 65,536 numbers.
std::optional<std::vector<int>> number_list(std::string_view text);

// Returns the text itself, or its first `longest` bytes and "..." if it is longer.
std::string shortened(std::string_view text, size_t longest = 200);

// Finds many patterns in one pass over a text, ignoring case (Aho and Corasick 1975).

class PatternMatcher {
 public:
  // `patterns` must be in lower case; ASCII letters of a text match in either case. At most 65,535 bytes in total, with 127 different
  // values.
  explicit PatternMatcher(const std::vector<std::string>& patterns);

  // Calls found(pattern index, position of its first byte) for every occurrence, ordered by the last byte.
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

  std::array<uint8_t, 256> column_{};  // column of each byte; 0 if no pattern contains it. Few columns keep the table in the cache
  std::vector<std::array<uint16_t, 128>> next_;
  std::vector<uint8_t> stops_;             // whether a pattern ends in this state or in a suffix of it
  std::vector<uint16_t> shorter_;          // the longest suffix state in which a pattern ends; 0: none
  std::vector<std::vector<size_t>> here_;  // patterns that end in a state
  std::vector<size_t> lengths_;
};

}  // namespace npu_train::detail
