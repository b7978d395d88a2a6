/// Patterns for dotted names, such as those of layers and parameters ("blocks.0.attention.qkv.weight").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace npu_train {

/// Whether all of `text` matches `pattern`: "*" matches any text, also none; every other character for itself. The time is at most the
/// product of the lengths.
bool glob_matches(std::string_view text, std::string_view pattern);

/// Whether `pattern` matches one or more consecutive parts of `name`, where dots separate parts: "attention", "blocks.0", "attention.q*"
/// and "*.qkv" match "blocks.0.attention.qkv", "atten" and "locks.0" do not. "*" matches any text, dots included.
bool parts_match(std::string_view name, std::string_view pattern);

/// The names that a pattern selects, in their order: the one that equals it; if there is none, those that parts_match().
std::vector<std::string> matching_names(const std::vector<std::string>& names, const std::string& pattern);

}  // namespace npu_train
