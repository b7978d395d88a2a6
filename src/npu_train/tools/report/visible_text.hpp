/// Text from untrusted files, made safe for pages and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "npu_train/core/message_text.hpp"

namespace npu_train::detail {

/// Like visible_text(), with HTML markup escaped, for text and for attributes in double quotes.
std::string escape_html(std::string_view text);

}  // namespace npu_train::detail
