// Names of layers or parameters that a user's patterns select.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace npu_train::detail {

// Those of `names` that a pattern matches. Error(Usage) for a pattern that matches none, which gives the nearest or the first names.
// `what` is the word for a name: "parameter".
std::set<std::string> selected(const char* where, const std::string& what, const std::vector<std::string>& patterns,
                               const std::vector<std::string>& names);

}  // namespace npu_train::detail
