// Pairs the calls of two dumps, and selects which calls are read.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/tools/align/compare.hpp"

namespace npu_train::detail {

// The indices of corresponding calls, in the order of A; -1 on a side without the call. A call that only B has follows the last paired call
// before it in B.
using CallPairs = std::vector<std::pair<int64_t, int64_t>>;

struct CallMatch {
  CallPairs pairs;
  std::vector<std::string> notes{};             // notes on calls that were paired although their names do not correspond
  std::set<std::string> unknown{};              // see unknown_names()
  std::map<std::string, std::string> layers{};  // name in A -> name in B, for the layers of paired calls, if the names differ
  std::set<int64_t> by_size{};                  // indices of calls of A that were paired only by the sizes of parameters and outputs
};
// Returns a sentence for each name in the mapping that its side does not have, which is probably misspelt.
std::set<std::string> unknown_names(const std::set<std::string>& in_a, const std::set<std::string>& in_b, const CompareOptions& options);

CallMatch match_calls(const DumpStep& a, const DumpStep& b, const CompareOptions& options);

// Pairs the items of two calls. `layers`: see CallMatch; it translates the names of parameters in an optimizer's call.
CallPairs match_items(const DumpCall& a, const DumpCall& b, const std::map<std::string, std::string>& layers = {});

// Selects the calls of a step that are read, see `sample` and `layers` in CompareOptions. `step` and `options` are borrowed. A layer is
// drawn with all its calls, so that the inputs, weights and gradients that explain a value are read, too. Of the optimizer's step, only the
// parameters of drawn layers are read. `fused_on_one_side`: only one run fuses norms with the operators after them. Then a drawn batch norm
// also draws the last layer. The inputs of the last layer can prove that the outputs of the norm differ only because they are values at
// different places of the network.
class ChosenCalls {
 public:
  ChosenCalls(const DumpStep& step, const CompareOptions& options, bool fused_on_one_side = false);
  bool has(size_t index) const;
  bool has_item(const DumpCall& call, const DumpItem& item) const;

 private:
  double draw(const std::string& layer) const;
  bool is_drawn(const std::string& layer) const;

  const DumpStep& step_;
  const CompareOptions& options_;
  std::string last_layer_;
  std::set<std::string> layers_;  // layers of the step; empty unless only a sample is read
  std::string always_drawn_;      // the layer that even the smallest sample contains
  bool draws_last_ = false;       // whether the last layer is drawn, too, see `fused_on_one_side`
};

}  // namespace npu_train::detail
