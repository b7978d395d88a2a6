/// Shortens a list of names for a message.
#pragma once

#include <string>
#include <vector>

#include "npu_train/core/text.hpp"

namespace npu_train::detail {

/// Joins at most `most` names and adds the number of the others: "a, b, c", "a, b, and 3 more".
inline std::string first_few(const std::vector<std::string>& names, size_t most) {
  if (names.size() <= most) return join(names);
  const std::vector<std::string> shown(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(most));
  return join(shown) + ", and " + std::to_string(names.size() - most) + " more";
}

}  // namespace npu_train::detail
