// Which calls of two dumps belong together, and which of them are read.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/tools/align/compare.hpp"

namespace npu_train::detail {

// Indices of corresponding calls; -1 if there is none on the other side. In the order of A; calls that only B has follow their neighbour.
using CallPairs = std::vector<std::pair<int64_t, int64_t>>;

struct CallMatch {
  CallPairs pairs;
  std::vector<std::string> notes{};             // pairs that no name speaks for
  std::set<std::string> unknown{};              // names of the mapping that are in neither layer nor call, as sentences
  std::map<std::string, std::string> layers{};  // of A -> of B, where the names of what was paired differ
};
CallMatch match_calls(const DumpStep& a, const DumpStep& b, const CompareOptions& options);

// The same for the items of two calls. `layers`: see CallMatch; parameters of an optimizer's call go by them.
CallPairs match_items(const DumpCall& a, const DumpCall& b, const std::map<std::string, std::string>& layers = {});

// Which calls of a step are read, see CompareOptions::sample and layers. Both are borrowed.
class ChosenCalls {
 public:
  ChosenCalls(const DumpStep& step, const CompareOptions& options);
  bool has(size_t index) const;

 private:
  const DumpStep& step_;
  const CompareOptions& options_;
  std::string last_layer_;
};

}  // namespace npu_train::detail
