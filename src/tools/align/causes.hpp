// The likely causes of a difference, as facts/causes.tsv words them.
#pragma once

#include <string>
#include <vector>

namespace npu_train::detail {

// Appends the row `name` of the table: its cause to `likely`, what to do to `advice`. `values` are {1}, {2} ... of both texts.
void add_cause(const char* name, const std::vector<std::string>& values, std::vector<std::string>& likely,
               std::vector<std::string>& advice);

}  // namespace npu_train::detail
