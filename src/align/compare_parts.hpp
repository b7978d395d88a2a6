// The pieces of a comparison of dumps.
#pragma once

#include <string>

#include "npu_train/align/compare.hpp"

namespace npu_train::detail {

// Error(Usage) for numbers out of range.
void check_options(const CompareOptions& options);

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

// A fact of a dump's head; "" where it has none.
std::string fact_of(const DumpStep& step, const std::string& name);
// Whether running statistics are meant, which a call moves: they are what it gives.
bool is_moved(const ItemComparison& item);
// Before the errors of a call are counted: what running statistics are off in proportion to the spread of their values.
double moved_error_of(const ItemComparison& item, const CallComparison& call);

// Between runs that may differ in rounding: takes back what failed where no call differs by itself and rounding explains the error.
// `later`: behind a step that was judged and had no fault.
void forgive_rounding(StepComparison& step, const DumpStep& a, const DumpStep& b, bool later);
// The first call, in order, that differs by itself. `same_environment`: no rounding is expected.
Divergence first_divergence(const StepComparison& step, const DumpStep& a, const DumpStep& b, bool same_environment);
// Likely causes and what to try.
void explain(Divergence& divergence, const CallComparison& call, const DumpStep& a, const DumpStep& b);

}  // namespace npu_train::detail
