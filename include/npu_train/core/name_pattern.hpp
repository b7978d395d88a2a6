/// Patterns for dotted names, such as those of layers and parameters ("blocks.0.attention.qkv.weight").
#pragma once

#include <set>
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

/// The names of layers or parameters that one of the patterns selects. Error(Usage) for a pattern that selects none, with the first names;
/// `where` begins the message, and `what` is the word for a name: "parameter".
std::set<std::string> selected_names(const char* where, const std::string& what, const std::vector<std::string>& patterns,
                                     const std::vector<std::string>& names);

}  // namespace npu_train
