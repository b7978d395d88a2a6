// The style and the script of every page.
#pragma once

#include <string_view>

namespace npu_train::detail {

extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace npu_train::detail
