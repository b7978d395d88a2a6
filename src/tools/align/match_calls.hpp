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
  std::set<int64_t> by_size{};                  // calls of A that were paired by the sizes of parameters and outputs alone
};
CallMatch match_calls(const DumpStep& a, const DumpStep& b, const CompareOptions& options);

// The same for the items of two calls. `layers`: see CallMatch; parameters of an optimizer's call go by them.
CallPairs match_items(const DumpCall& a, const DumpCall& b, const std::map<std::string, std::string>& layers = {});

// Which calls of a step are read, see CompareOptions::sample and layers. Both are borrowed. A layer is drawn with all its calls, so that
// the inputs, weights and gradients that prove a value are read with it; of the optimizer's step, the parameters of the drawn layers.
class ChosenCalls {
 public:
  ChosenCalls(const DumpStep& step, const CompareOptions& options);
  bool has(size_t index) const;
  bool has_item(const DumpCall& call, const DumpItem& item) const;

 private:
  double draw(const std::string& layer) const;
  bool is_drawn(const std::string& layer) const;

  const DumpStep& step_;
  const CompareOptions& options_;
  std::string last_layer_;
  std::set<std::string> layers_;  // of a sample
  std::string always_drawn_;      // the one that the smallest sample has
};

}  // namespace npu_train::detail
