// Replacements of characters in SentencePiece's format (precompiled_charsmap): a trie of the texts to replace, stored as an array of units,
// and the texts that replace them. A unit has the layout of Yata's darts-clone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train::detail {

class Charsmap {
 public:
  struct Match {
    size_t bytes = 0;       ///< size of the text that is replaced; 0: no match
    std::string_view text;  ///< the replacement
  };

  /// Replaces nothing.
  Charsmap() = default;
  /// Reads the size of the trie in bytes, the trie, and the replacements, each of which ends with a zero byte. Error(Data) with the name
  /// `where` if the data are damaged. This includes a trie with a value that does not refer to a replacement, because a search could then
  /// read outside of the data.
  Charsmap(std::string_view bytes, const std::string& where);

  static constexpr size_t kLongest = 1024;  ///< bytes; longer texts of the trie are not found

  /// Return the shortest and the longest text of the trie with which `text` begins.
  Match shortest(std::string_view text) const;
  Match longest(std::string_view text) const;

 private:
  template <class Found>
  void each(std::string_view text, Found&& found) const;
  Match match(size_t bytes, uint32_t value) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace npu_train::detail
