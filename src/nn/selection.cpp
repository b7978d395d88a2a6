#include "nn/selection.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/first_few.hpp"
#include "npu_train/core/name_pattern.hpp"

namespace npu_train::detail {

std::set<std::string> selected(const char* where, const std::string& what, const std::vector<std::string>& patterns,
                               const std::vector<std::string>& names) {
  std::set<std::string> out;
  for (const auto& pattern : patterns) {
    const auto found = matching_names(names, pattern);
    if (found.empty())
      throw Error(ErrorKind::Usage, where, "'" + pattern + "' matches no " + what + " of the model; it has " + first_few(names, 6),
                  "give complete parts of a name, * matches any text: attention.*, *.bias");
    out.insert(found.begin(), found.end());
  }
  return out;
}

}  // namespace npu_train::detail
