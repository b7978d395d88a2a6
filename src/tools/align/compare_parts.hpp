// The pieces of a comparison of dumps.
#pragma once

#include <exception>
#include <set>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/tools/align/compare.hpp"

namespace npu_train::detail {

// What `read` gives. An input that it refuses, by whatever kind of error, is bad data to a comparison: Error(Data) of the same text.
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

// Behind "nothing was compared", where --layers is why.
std::string chosen_layers_text(const CompareOptions& options);

// Notes and warns of tolerances that fit no call: a slip of the pen.
void tell_unused_tolerances(const CompareOptions& options, DumpComparison& out);

// Notes and warns of what a part of the network leaves unproven.
void tell_unproven(StepComparison& step);

// Error of the values as their statistics show it.
double statistics_error(const DumpItem& a, const DumpItem& b);
// The relative error that rounding alone may give a layer of this dtype.
double noise_of(const std::string& dtype_a, const std::string& dtype_b);
// By the digits of a dtype, fewer first: 0 bfloat16, 1 float16, 2 float32, 3 float64, 4 others.
int fineness(const std::string& dtype);
// "torch.bfloat16" of it and "torch.float32".
std::string coarser_dtype(const std::string& a, const std::string& b);

// Fills errors and verdicts of what was paired.
class ItemJudge {
 public:
  ItemJudge(const DumpStep& a, const DumpStep& b, const CompareOptions& options);
  // Reads and compares; thread-safe. Gives the bytes that were read.
  int64_t compare(ItemComparison& item, const std::string& direction) const;
  // With a reference, before values are judged.
  void learn_costs(const StepComparison& step);
  void judge(ItemComparison& item, const CallComparison& call) const;
  double noise() const { return noise_of(run_dtype_, run_dtype_); }

 private:
  // The error that the precision of A may cost a value, by what that of B costs it: a coarser precision costs more in proportion.
  double cost_of(const ItemComparison& item, const CallComparison& call) const;
  void judge_readable(ItemComparison& item, const CallComparison& call) const;
  Tolerance tolerance_of(const ItemComparison& item, const CallComparison& call) const;
  int64_t compare_files(ItemComparison& item, double scale_a, double scale_b) const;
  void compare_statistics(ItemComparison& item, double scale_a, double scale_b) const;
  static void compare_statistics_of(ItemComparison& item);

  const DumpStep& a_;
  const DumpStep& b_;
  const CompareOptions& options_;
  std::string dtype_a_, dtype_b_, run_dtype_;  // what the runs compute in, and the coarser of the two
  std::map<std::string, double> scales_;       // by direction: largest magnitude of gradients
  std::map<std::string, double> costs_;        // by kind of value: B's worst error to the reference
};

// A fact of a dump's head; "" if it has none.
std::string fact_of(const DumpStep& step, const std::string& name);
// Whether a dump holds a part of what the run did: by its options (then calls in the middle are missing), or because it was killed.
bool is_part(const DumpStep& step);
bool has_gaps(const DumpStep& step);
// Whether kernels of the run may have done a norm and what follows it at once. Programs that note nothing of it, as those of PyTorch, do
// not.
bool fuses_kernels(const DumpStep& step);
// Whether these are running statistics, which a call updates: they count as its outputs.
bool is_moved(const ItemComparison& item);
// Before the errors of a call are counted: what running statistics are off in proportion to the spread of their values.
double moved_error_of(const ItemComparison& item, const CallComparison& call);

struct Forgiving {
  bool later = false;        // after a step that was judged and had no fault
  bool places_only = false;  // only outputs that fused kernels show at another place
  bool strict = false;       // see CompareOptions
};
// Between runs that may differ in rounding: reverses failures if no call differs by itself and rounding explains the error, and those whose
// cause the compared calls cannot show.
void forgive_rounding(StepComparison& step, const DumpStep& a, const DumpStep& b, const Forgiving& how);

// Whether all values of a side are finite, as far as it is known.
bool is_finite(const ItemComparison& item, bool in_a);
bool is_nan_in_both(const ItemComparison& item);
// "not finite in A alone", of an item that has no finite error.
std::string not_finite_text(const ItemComparison& item);
// Fails NaN on both sides that propagate to the loss, the parameters' gradients or the weights: they agree and prove nothing. Masked
// values, and steps that the loss scale skips, do not propagate.
void fail_unproven(StepComparison& step, const DumpStep& a, const DumpStep& b);

// Layers with a call in the forward, without the optimizer's.
std::set<std::string> layers_of(const DumpStep& step);
// Whether a side that has these layers and not that of `call` cuts the network otherwise there: finer, coarser, or without a name for it.
bool is_cut_otherwise(const DumpCall& call, const std::set<std::string>& layers);
// Elements of the parameters that a call of a layer uses; 0 for other calls.
int64_t parameter_elements(const DumpCall& call);
// Modules with calls that one side has alone, of which both have as many elements of parameters in all.
std::vector<std::string> regrouped_modules(const DumpStep& a, const DumpStep& b, const std::vector<std::pair<int64_t, int64_t>>& pairs);
// Whether the layer, or the module that it is in, is one of them.
bool is_regrouped(const StepComparison& step, const std::string& layer);
// A finding if a large part of the layers of one side has no counterpart of its shape: then no single layer is the cause.
Divergence other_models(const StepComparison& step, const DumpStep& a, const DumpStep& b);
// A finding where one side has layers that the other lacks, or runs the network more often in a step.
Divergence other_structure(const StepComparison& step, const DumpStep& a, const DumpStep& b);

// How two runs are compared.
struct Setting {
  bool same_environment = false;  // no rounding is expected
  bool has_reference = false;
};
// The first call, in order, that differs by itself.
Divergence first_divergence(const StepComparison& step, const DumpStep& a, const DumpStep& b, const Setting& setting);
// Likely causes and what to try.
void explain(Divergence& divergence, const CallComparison& call, const DumpStep& a, const DumpStep& b, bool has_reference);
// The advice about rounding: a run in fp32 distinguishes it from faults, and one of the two may be such a run.
std::string reference_advice(const DumpStep& a, const DumpStep& b, bool has_reference);

}  // namespace npu_train::detail
