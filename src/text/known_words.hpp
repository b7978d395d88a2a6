// A cache of the ids of words, because most words of a text occur often.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/token_model.hpp"

namespace npu_train::detail {

class KnownWords {
 public:
  explicit KnownWords(const TokenModel& model) : model_(model) {}

  void append(std::string_view word, std::vector<int32_t>& out) {
    const auto divider = word.size() > kLongest ? model_.divider() : std::string_view();
    if (divider.empty()) return append_part(word, out);
    for (size_t begin = 0; begin < word.size();) {
      size_t end = word.find(divider, begin + 1);
      while (end != std::string_view::npos && word.substr(0, end).ends_with(divider)) end = word.find(divider, end + divider.size());
      end = std::min(end, word.size());
      append_part(word.substr(begin, end - begin), out);
      begin = end;
    }
  }

 private:
  static constexpr size_t kLongest = 64, kMost = 65536;

  void append_part(std::string_view word, std::vector<int32_t>& out) {
    if (word.size() > kLongest) return model_.encode(word, out);
    const auto found = ids_.find(word);
    if (found != ids_.end()) {
      out.insert(out.end(), found->second.begin(), found->second.end());
      return;
    }
    const auto before = static_cast<std::ptrdiff_t>(out.size());
    model_.encode(word, out);
    if (ids_.size() < kMost) ids_.emplace(std::string(word), std::vector<int32_t>(out.begin() + before, out.end()));
  }

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  const TokenModel& model_;
  std::unordered_map<std::string, std::vector<int32_t>, Hash, std::equal_to<>> ids_;
};

}  // namespace npu_train::detail
