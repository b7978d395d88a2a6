// How calls of two dumps were paired, for who must tell it.
#pragma once

#include <string>
#include <vector>

#include "align/compare_parts.hpp"

namespace npu_train::detail {

struct CallMatch {
  CallPairs pairs;                   // as match_calls gives them
  std::vector<std::string> notes{};  // pairs that no name speaks for
};
CallMatch match_and_tell(const DumpStep& a, const DumpStep& b, const CompareOptions& options);

}  // namespace npu_train::detail
