// Small parsers for texts that systems provide. They do not throw for any input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/core/first_line.hpp"

namespace npu_train::detail {

// Splits at separators and keeps empty parts. Of more than 100,000 parts, the last one contains the rest.
std::vector<std::string> split(std::string_view text, char separator);
// Splits at runs of blanks.
std::vector<std::string> words(std::string_view text);
std::string trimmed(std::string_view text);

// Returns the value of a line "key<separator> value", without surrounding blanks: cpuinfo, meminfo, version.info, os-release (quotes are
// removed). nullopt without such a line.
std::optional<std::string> value_of(std::string_view text, std::string_view key, char separator);

// Parses a complete decimal number, surrounded only by blanks.
std::optional<int64_t> whole_number(std::string_view text);
// Parses the number at the start of the text.
std::optional<int64_t> leading_number(std::string_view text);

// Parses a list of CPUs or nodes, "0-3,8,10-11"; nullopt for other text, and for more than 65,536 of them.
std::optional<std::vector<int>> number_list(std::string_view text);

// Returns at most `longest` bytes, with the rest replaced by "...".
std::string shortened(std::string_view text, size_t longest = 200);

}  // namespace npu_train::detail
