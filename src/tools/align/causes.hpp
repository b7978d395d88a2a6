// The likely causes of a difference, as facts/causes.tsv words them.
#pragma once

#include <string>
#include <vector>

namespace npu_train::detail {

// Appends the row `name` of the table: its cause to `likely`, its advice to `advice`; a row may have only one of them. `values` replace
// {1}, {2} and so on in both texts.
void add_cause(const char* name, const std::vector<std::string>& values, std::vector<std::string>& likely,
               std::vector<std::string>& advice);

// Adds the row `cause` to a finding: a Divergence, or a HistoryComparison.
template <class Finding>
void say(Finding& finding, const char* cause, const std::vector<std::string>& values = {}) {
  add_cause(cause, values, finding.likely, finding.advice);
}

}  // namespace npu_train::detail
