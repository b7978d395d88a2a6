// The likely causes of a difference, in the words of facts/causes.tsv.
#pragma once

#include <string>
#include <vector>

namespace npu_train::detail {

// Appends the cause in row `name` of the table to `likely`, and the advice in it to `advice`; a row may lack one of the two. `values`
// replace {1}, {2} and so on in both texts.
void add_cause(const char* name, const std::vector<std::string>& values, std::vector<std::string>& likely,
               std::vector<std::string>& advice);

// Adds the row `cause` to a finding: a Divergence, or a HistoryComparison.
template <class Finding>
void say(Finding& finding, const char* cause, const std::vector<std::string>& values = {}) {
  add_cause(cause, values, finding.likely, finding.advice);
}

}  // namespace npu_train::detail
