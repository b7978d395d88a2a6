/// The byte order mark that programs of Windows write at the start of a UTF-8 file.
#pragma once

#include <cstddef>
#include <string_view>

namespace npu_train {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Returns the position after a byte order mark, 0 without one.
inline size_t start_of_text(std::string_view text) { return text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; }

}  // namespace npu_train
