// Small readers for what systems write about themselves. Nothing here throws for what it is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/core/first_line.hpp"

namespace npu_train::detail {

// Parts between separators, empty ones too; at most 100,000, the last one then holds the rest.
std::vector<std::string> split(std::string_view text, char separator);
// Parts between runs of blanks.
std::vector<std::string> words(std::string_view text);
std::string trimmed(std::string_view text);

// The value in a line "key<separator> value", blanks around both ignored: cpuinfo, meminfo, version.info, os-release (quotes are removed).
// Nothing without such a line.
std::optional<std::string> value_of(std::string_view text, std::string_view key, char separator);

// A complete decimal number, surrounded only by blanks.
std::optional<int64_t> whole_number(std::string_view text);
// The number that the text begins with.
std::optional<int64_t> leading_number(std::string_view text);
// Bytes of "123 kB".
std::optional<int64_t> kib_value(std::string_view text, std::string_view key);

// CPUs or nodes of a list "0-3,8,10-11"; nothing for what is no list, or names more than 65,536.
std::optional<std::vector<int>> number_list(std::string_view text);

// At most `longest` bytes, the rest replaced by "...".
std::string shortened(std::string_view text, size_t longest = 200);

}  // namespace npu_train::detail
