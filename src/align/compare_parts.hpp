// The pieces of a comparison of dumps.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu_train/align/compare.hpp"

namespace npu_train::detail {

// Indices of calls that belong together; -1 for what has no other side. In the order of A, what only B has behind its neighbour.
using CallPairs = std::vector<std::pair<int64_t, int64_t>>;
CallPairs match_calls(const DumpStep& a, const DumpStep& b, const CompareOptions& options);
// The same for the items of two calls.
CallPairs match_items(const DumpCall& a, const DumpCall& b);

// Which of the pairs are read, see CompareOptions::sample and layers.
bool is_chosen(const DumpCall& call, const DumpStep& step, size_t index, const CompareOptions& options);

// Error of the values as their statistics show it.
double statistics_error(const DumpItem& a, const DumpItem& b);
// The relative error that rounding alone may give a layer of this dtype.
double noise_of(const std::string& dtype_a, const std::string& dtype_b);
// "torch.bfloat16" of it and "torch.float32".
std::string coarser_dtype(const std::string& a, const std::string& b);

// Fills errors and verdicts of what was paired.
class ItemJudge {
 public:
  ItemJudge(const DumpStep& a, const DumpStep& b, const CompareOptions& options);
  // Reads and compares; thread-safe. Gives the bytes that were read.
  int64_t compare(ItemComparison& item, const std::string& direction) const;
  void judge(ItemComparison& item, const CallComparison& call) const;
  double noise() const { return noise_of(run_dtype_, run_dtype_); }

 private:
  Tolerance tolerance_of(const ItemComparison& item, const CallComparison& call) const;
  int64_t compare_files(ItemComparison& item, double scale_a, double scale_b) const;
  void compare_statistics(ItemComparison& item, double scale_a, double scale_b) const;
  static void compare_statistics_of(ItemComparison& item);

  const DumpStep& a_;
  const DumpStep& b_;
  const CompareOptions& options_;
  std::string run_dtype_ = "torch.float32";  // what the coarser of the two runs computes in
  std::map<std::string, double> scales_;     // by direction: largest magnitude of gradients
};

// Between runs that may differ in rounding: takes back what failed where no call differs by itself and the kinks of activations explain
// the error of the gradients, or where a fused kernel shows another place of the network.
void forgive_rounding(StepComparison& step, const DumpStep& a);
// The first call, in order, that differs by itself. `same_environment`: no rounding is expected.
Divergence first_divergence(const StepComparison& step, const DumpStep& a, const DumpStep& b, bool same_environment);
// Likely causes and what to try.
void explain(Divergence& divergence, const CallComparison& call, const DumpStep& a, const DumpStep& b);

}  // namespace npu_train::detail
