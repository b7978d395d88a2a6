#pragma once

#include <cstdint>
#include <string>

#include "npu_train/core/text.hpp"

namespace npu_train::detail::scan {

/// Returns "1 place" or "2 places".
inline std::string counted(int64_t count, const std::string& what) { return with_commas(count) + " " + what + (count == 1 ? "" : "s"); }

}  // namespace npu_train::detail::scan
