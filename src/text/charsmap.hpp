// Replacements of characters as SentencePiece stores them (precompiled_charsmap): a trie of the texts that are replaced, as an array of
// units, and the texts that replace them. The layout of a unit is that of Yata's darts-clone.
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
    size_t bytes = 0;       ///< of the text that is replaced; 0: none
    std::string_view text;  ///< what replaces it
  };

  /// Replaces nothing.
  Charsmap() = default;
  /// Reads the number of the trie's bytes, the trie, and the replacements, each of which ends with a zero byte. Error(Data) with the name
  /// `where`, also for a trie with values that are not replacements: no text can lead out of what was read.
  Charsmap(std::string_view bytes, const std::string& where);

  static constexpr size_t kLongest = 1024;  ///< bytes of a text of the trie; longer ones are not found

  /// Returns the shortest, and the longest, text of the trie with which `text` begins.
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
