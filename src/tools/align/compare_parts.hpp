// Parts of the comparison of dumps.
#pragma once

#include <exception>
#include <set>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/align/compare.hpp"

namespace npu_train::detail {

// Returns the result of `read`. In a comparison, an input that `read` rejects is bad data, so Error(Checkpoint) and Error(Usage) are
// rethrown as Error(Data) with the same text.
template <class Read>
auto as_input(Read&& read) -> decltype(read()) {
  try {
    return read();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Checkpoint && e.kind() != ErrorKind::Usage) throw;
    const std::string text = e.what(), head = "[" + e.where() + "] ";
    throw Error(ErrorKind::Data, e.where(), text.starts_with(head) ? text.substr(head.size()) : text, "", std::current_exception());
  }
}

// Error(Usage) for numbers out of range.
void check_options(const CompareOptions& options);

// Returns the end of the message that nothing could be compared, for the case that --layers may be the reason.
std::string chosen_layers_text(const CompareOptions& options);

// Adds the result of unknown_names() to the notes and the log. Error(Usage) if neither side has any name of the mapping.
void tell_unknown(const std::set<std::string>& unknown, const CompareOptions& options, DumpComparison& out);

// Adds tolerances that match no call, for example because of a misspelt name, to the notes and the log.
void tell_unused_tolerances(const CompareOptions& options, DumpComparison& out);

// Adds the results that a partial comparison cannot prove to the notes and the log.
void tell_unproven(StepComparison& step);

// Returns the relative error of values, estimated from their statistics.
double statistics_error(const DumpItem& a, const DumpItem& b);
// Returns the relative error that rounding alone may cause in a layer of these dtypes.
double noise_of(const std::string& dtype_a, const std::string& dtype_b);
// Ranks a dtype by its precision, lowest first: 0 bfloat16, 1 float16, 2 float32, 3 float64, 4 others.
int fineness(const std::string& dtype);
// Returns the dtype with less precision: "torch.bfloat16" for "torch.bfloat16" and "torch.float32".
std::string coarser_dtype(const std::string& a, const std::string& b);

// Computes errors and verdicts of paired items.
class ItemJudge {
 public:
  ItemJudge(const DumpStep& a, const DumpStep& b, const CompareOptions& options);
  // Reads and compares the values; thread-safe. Returns the number of bytes read.
  int64_t compare(ItemComparison& item, const std::string& direction) const;
  // Collects the errors relative to a reference. Call it before judge().
  void learn_costs(const StepComparison& step);
  void judge(ItemComparison& item, const CallComparison& call) const;
  double noise() const { return noise_of(run_dtype_, run_dtype_); }

 private:
  // Returns the error that the precision of A may cause in a value. It is estimated from the error of B, in proportion to both precisions.
  double cost_of(const ItemComparison& item, const CallComparison& call) const;
  void judge_readable(ItemComparison& item, const CallComparison& call) const;
  Tolerance tolerance_of(const ItemComparison& item, const CallComparison& call) const;
  int64_t compare_files(ItemComparison& item, double scale_a, double scale_b) const;
  void compare_statistics(ItemComparison& item, double scale_a, double scale_b) const;
  static void compare_statistics_of(ItemComparison& item);

  const DumpStep& a_;
  const DumpStep& b_;
  const CompareOptions& options_;
  std::string dtype_a_, dtype_b_, run_dtype_;  // computing dtypes of the runs, and the coarser of the two
  std::map<std::string, double> scales_;       // by direction of the call: largest magnitude of B's gradients
  std::map<std::string, double> costs_;        // by kind of value: worst error of B relative to the reference
};

// Returns a fact from the head of a dump; "" if it is missing.
std::string fact_of(const DumpStep& step, const std::string& name);
// is_part: whether a dump lacks a part of the run, because its options exclude calls or because it is truncated. has_gaps: whether its
// options exclude calls, so that calls may be missing between others.
bool is_part(const DumpStep& step);
bool has_gaps(const DumpStep& step);
// Whether the run may have used kernels that fuse a norm with the operators after it. A dump without this fact, such as one of PyTorch,
// counts as not fused.
bool fuses_kernels(const DumpStep& step);
// Whether a layer of this type is a batch norm, the class of norms that such kernels fuse.
bool is_batch_norm(const std::string& type);
// Whether the item is a running statistic, which a call updates and which therefore counts as its output.
bool is_moved(const ItemComparison& item);
// Returns the error of running statistics, relative to the spread of their values.
double moved_error_of(const ItemComparison& item, const CallComparison& call);

struct Forgiving {
  bool later = false;        // an earlier step was judged and had no fault
  bool places_only = false;  // forgive only outputs of norms that one run fuses with later operators, and the gradients of these outputs
  bool strict = false;       // see CompareOptions
};
// For runs that may differ by rounding. If no call differs by itself, withdraws the failures that rounding explains, and the failures whose
// cause the compared calls cannot show.
void forgive_rounding(StepComparison& step, const DumpStep& a, const DumpStep& b, const Forgiving& how);

// Whether all known values of one side are finite.
bool is_finite(const ItemComparison& item, bool in_a);
bool is_nan_in_both(const ItemComparison& item);
// Describes an item without a finite error: "not finite in A only".
std::string not_finite_text(const ItemComparison& item);
// Fails values that are NaN on both sides if they propagate to the loss, the parameters' gradients or the weights: they agree, but prove
// nothing. Masked values, and steps that the loss scale skips, do not propagate.
void fail_unproven(StepComparison& step, const DumpStep& a, const DumpStep& b);

// Returns the layers with a forward call, except the optimizer.
std::set<std::string> layers_of(const DumpStep& step);
// Whether a side with `layers` divides this part of the network differently: into smaller layers, into larger layers, or without a name for
// this part.
bool is_cut_otherwise(const DumpCall& call, const std::set<std::string>& layers);
// Returns the number of elements of the parameters that a call uses; 0 if it uses none.
int64_t parameter_elements(const DumpCall& call);
// Returns the modules in which the unpaired calls of both sides have equal numbers of parameter elements.
std::vector<std::string> regrouped_modules(const DumpStep& a, const DumpStep& b, const std::vector<std::pair<int64_t, int64_t>>& pairs);
// Whether the layer, or the module around it, is in `step.regrouped`.
bool is_regrouped(const StepComparison& step, const std::string& layer);
// Returns a finding if many layers of one side have no counterpart of the same shape, so that no single layer is the cause.
Divergence other_models(const StepComparison& step, const DumpStep& a, const DumpStep& b);
// Returns a finding if one side has layers that the other lacks, or runs the network more often per step.
Divergence other_structure(const StepComparison& step, const DumpStep& a, const DumpStep& b);

// Conditions of a comparison.
struct Setting {
  bool same_environment = false;  // no rounding is expected
  bool has_reference = false;
};
// Finds the first call, in order, that differs by itself.
Divergence first_divergence(const StepComparison& step, const DumpStep& a, const DumpStep& b, const Setting& setting);
// Adds likely causes and advice.
void explain(Divergence& divergence, const CallComparison& call, const DumpStep& a, const DumpStep& b, bool has_reference);
// Returns advice: to distinguish rounding from faults by a run in fp32, which may be one of the two compared runs; with a reference, to
// compare runs with equal precision.
std::string reference_advice(const DumpStep& a, const DumpStep& b, bool has_reference);

}  // namespace npu_train::detail
