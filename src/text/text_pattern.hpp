// The pattern of a normalizer, pre-tokenizer or decoder: {"String": "..."} or {"Regex": "..."}.
#pragma once

#include <string>

#include "npu_train/io/json.hpp"
#include "text/regex.hpp"

namespace npu_train::detail {

/// Error(Data) with the name `where` for another object, and for patterns that are not supported.
Regex read_pattern(const Json& json, const std::string& where);

/// Error(Data) for a text that is larger than one may become: several steps that double a text would fill any memory.
inline constexpr size_t kLargestText = size_t{256} << 20;
void check_text_size(size_t bytes);

/// Returns the text with `content` in the place of each match.
std::string replaced(std::string_view text, const Regex& pattern, std::string_view content);

}  // namespace npu_train::detail
