#include "npu_train/core/name_pattern.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"

namespace npu_train {

bool glob_matches(std::string_view text, std::string_view pattern) {
  // Greedy matching that backtracks only to the last "*".
  size_t n = 0, p = 0, star = std::string_view::npos, mark = 0;
  while (n < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && pattern[p] == text[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool parts_match(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return false;
  const auto between_dots = [](std::string_view text) { return "." + std::string(text) + "."; };
  return glob_matches(between_dots(name), "*" + between_dots(pattern) + "*");
}

std::vector<std::string> matching_names(const std::vector<std::string>& names, const std::string& pattern) {
  if (std::find(names.begin(), names.end(), pattern) != names.end()) return {pattern};
  std::vector<std::string> out;
  for (const auto& name : names)
    if (parts_match(name, pattern)) out.push_back(name);
  return out;
}

std::set<std::string> selected_names(const char* where, const std::string& what, const std::vector<std::string>& patterns,
                                     const std::vector<std::string>& names) {
  std::set<std::string> out;
  for (const auto& pattern : patterns) {
    const auto found = matching_names(names, pattern);
    if (found.empty())
      throw Error(ErrorKind::Usage, where, "'" + pattern + "' matches no " + what + " of the model; it has " + detail::first_few(names, 6),
                  "give complete parts of a name, * matches any text: attention.*, *.bias");
    out.insert(found.begin(), found.end());
  }
  return out;
}

}  // namespace npu_train
