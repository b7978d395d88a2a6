/// Patterns for dotted names, such as those of layers and parameters ("blocks.0.attention.qkv.weight").
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace npu_train {

/// Returns whether all of `text` matches `pattern`, in which "*" matches any text, including the empty one. The time is at most
/// proportional to the product of the lengths.
bool glob_matches(std::string_view text, std::string_view pattern);

/// Returns whether `pattern` matches one or more consecutive dot-separated parts of `name`. For "blocks.0.attention.qkv", the patterns
/// "attention", "blocks.0", "attention.q*" and "*.qkv" match, "atten" and "locks.0" do not. "*" matches any text, including dots.
bool parts_match(std::string_view name, std::string_view pattern);

/// Returns the name that equals the pattern, or else all names that match by parts_match(), in order.
std::vector<std::string> matching_names(const std::vector<std::string>& names, const std::string& pattern);

/// Returns the names of layers or parameters that one of the patterns selects. Error(Usage) for a pattern that selects none. Its message
/// begins with `where`, lists the first few names, and calls them `what`: "parameter".
std::set<std::string> selected_names(const char* where, const std::string& what, const std::vector<std::string>& patterns,
                                     const std::vector<std::string>& names);

}  // namespace npu_train
