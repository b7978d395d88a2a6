/// Compares two dumps and reports where they first differ: which values differ by more than their precision explains, and which layer
/// causes the difference.
///
/// A layer *causes* a difference if its outputs differ although its inputs agree. A layer *suffers* a difference that is already in its
/// inputs. The comparison follows the calls in order and distinguishes the two cases by the amplification: the error of a layer's outputs
/// divided by the error of its inputs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "npu_train/tools/align/dump_reader.hpp"
#include "npu_train/tools/align/pair_metrics.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// Two values agree if max|a - b| <= atol * s + rtol * max|b|. `s` is 1 for activations, weights and the optimizer's state. For gradients,
/// `s` is the largest gradient of the same kind (gradients of values, or of parameters), but at most 1, so that atol does not hide small
/// gradients.
struct Tolerance {
  double atol = 1e-5;
  double rtol = 1e-3;
};

/// Returns the default tolerance of a pair, as (atol, rtol), for the coarser of the two dtypes: (1e-5, 1e-3) for fp32, (1e-3, 1e-2) for
/// fp16, (1e-2, 5e-2) for bf16, (1e-8, 1e-6) for fp64, and (0, 0) for others. Dtypes are named as in "torch.float32". If the runs compute
/// in a dtype that is even coarser, a comparison uses that dtype, because fp32 gradients of a bf16-mixed run are sums of bf16 numbers.
Tolerance default_tolerance(const std::string& dtype_a, const std::string& dtype_b);

struct CompareOptions {
  std::optional<double> atol{}, rtol{};                              ///< replace the defaults of all dtypes
  std::vector<std::pair<std::string, Tolerance>> layer_tolerance{};  ///< pattern of call names -> tolerance; the last match is used
  bool exact = false;                                                ///< only equal bits count as agreement
  bool fuzzy = true;                                                 ///< match calls without a counterpart by layer, class or order
  std::map<std::string, std::string> mapping{};                      ///< layer or call of A -> its name in B
  double sample = 1.0;                                               ///< fraction of the layers to read, drawn by name and seed
  double sample_elements = 1.0;                                      ///< fraction of the elements to read, in values with many elements
  int64_t seed = 0;                                                  ///< seed of both samples
  std::string layers{};               ///< last | sensitive (norms, softmax, loss, first and last layer) | a pattern; "": all
  std::vector<int64_t> steps{};       ///< empty: all
  std::string rank{};                 ///< "rank3"; "": all
  std::filesystem::path reference{};  ///< a third dump, in fp32, for a proportional tolerance; empty: none
  double proportion = 2.0;            ///< largest allowed ratio of A's error to B's, both relative to the reference
  bool strict = false;                ///< values that cannot be judged count as different
};

/// The difference of two values.
struct ItemComparison {
  std::string a, b;  ///< names of the items; "" on a side that lacks the item
  std::string side;  ///< input | output | parameters | parameters_grad
  DumpItem item_a{}, item_b{};
  enum class Kind { Tensor, Statistics, Checksum, Value, OneSided, Unmatched, NotCompared } kind = Kind::Value;
  PairMetrics metrics{};  ///< Kind::Tensor
  bool partial = false;   ///< Kind::Tensor: `metrics` covers only a part of the elements; the statistics of all elements are compared, too
  /// The error from which amplifications are computed: |a - b| / |b| in the L2 norm, or the largest estimate from the statistics; inf if
  /// only one side is finite, and 0 if the values are equal.
  double error = 0;
  double reference_error_a = -1, reference_error_b = -1;  ///< errors of A and B relative to the reference; -1: none
  bool transposed = false;  ///< one side stores this weight as [inputs, outputs] (Conv1D of transformers): only its statistics are compared
  bool failed = false;
  bool rounding = false;  ///< beyond the tolerance, but not by more than rounding explains (see docs/compare.md); does not count as failed
  /// The error exceeds rounding, but no compared call causes it. There are three cases: the error comes from calls that are not compared;
  /// it comes from rounding that updates amplified; or it is probably harmless, but only calls that are not compared could prove this. Does
  /// not count as failed.
  bool not_judged = false;
  bool unreadable = false;  ///< the file with its values is missing, damaged or not a regular file; counts as failed
  bool unproven = false;    ///< non-finite on both sides, and so is the result of the step; counts as failed
  /// Number of elements that `metrics` omits, because their gradient is only rounding on both sides. The optimizer's results for such
  /// elements are noise.
  int64_t noise_elements = 0;
  std::string message{};  ///< the reason why it failed or was not compared
};

/// One call on both sides.
struct CallComparison {
  std::string a, b;
  std::string layer, type, direction;
  std::string layer_b{};  ///< the layer's name in B, if it differs
  double input_error = 0, parameter_error = 0, output_error = 0;
  double moved_error = 0;  ///< error of running statistics, relative to the spread of their values
  double noise_error = 0;  ///< error of parameters before their ItemComparison::noise_elements were omitted
  std::vector<ItemComparison> items{};
  bool failed = false;
  double noise = 0;  ///< the relative error that rounding may cause in one call, in the precision of these runs
  /// Error of the outputs divided by the error of the inputs. Errors below `noise` count as `noise`.
  double amplification = 1;
};

/// The first difference of two runs.
struct Divergence {
  bool found = false;
  int64_t step = 0;
  std::string rank;
  std::string call, layer, type, direction;
  std::string layer_b{};  ///< see CallComparison
  /// NotProven: both runs have NaN from here on. Model: the runs have different networks. Unreadable: files of values cannot be read, and
  /// all other values agree.
  enum class Cause { Input, Weights, Layer, Before, Gradient, Optimizer, NotFinite, NotProven, Model, Unreadable } cause = Cause::Layer;
  double input_error = 0, output_error = 0;
  bool within_tolerance = false;  ///< the runs agree; this is the first place at which they are not equal
  std::string sentence;           ///< the observation
  std::vector<std::string> likely{}, advice{};
};

struct StepComparison {
  int64_t step = 0;
  std::string rank;
  std::vector<CallComparison> calls{};  ///< in the order of A
  bool complete_a = true, complete_b = true;
  int64_t compared = 0, failed = 0, rounding = 0, one_sided = 0, skipped = 0, not_compared = 0;
  int64_t unproven = 0, unreadable = 0;  ///< part of `failed`
  int64_t not_judged = 0;                ///< part of `compared`, see ItemComparison
  int64_t not_proven = 0;                ///< part of `not_judged`: values that belong to `unproven_places` or `unproven_update`
  int64_t other_places = 0;              ///< part of `rounding`: outputs of norms, or their gradients, at another place because of fusing
  /// Sums of ItemComparison::noise_elements over weights (before and after the step), over the optimizer's state, and over gradients.
  int64_t noise_weights = 0, noise_state = 0, noise_gradients = 0;
  double earlier_error = 0;  ///< largest relative error that earlier updates may have caused in a weight
  bool drifted = false;      ///< updates amplified the rounding of weights; see docs/compare.md
  /// Norm layers whose output on one side is probably the value at a later place of the network, because a kernel fuses the norm with the
  /// operators after it. No compared call proves this.
  std::set<std::string> unproven_places{};
  /// The optimizer's step differs by more than the compared gradients explain; gradients that are not compared may explain it.
  bool unproven_update = false;
  /// Modules whose parameters exist on both sides, but are divided into layers differently, for example one fused weight on one side and
  /// three weights on the other.
  std::vector<std::string> regrouped{};
  Divergence update{};  ///< difference in the optimizer's update before this step, inferred from the weights if a dump lacks the optimizer
  std::vector<std::string> notes{};
};

struct DumpComparison {
  std::string a, b, reference;
  std::map<std::string, std::string> facts_a{}, facts_b{};
  std::vector<StepComparison> steps{};
  std::vector<std::string> notes{};  ///< steps on one side only, truncated dumps, samples
  int64_t lone_steps = 0;            ///< number of requested steps that only one side has
  Divergence first;
  bool agrees = true;    ///< no compared value differs, and no gradient and no layer with parameters is missing
  bool complete = true;  ///< both have the same calls and steps, and all were compared
  bool sampled = false;  ///< only a part was read: agreement applies to that part
  int64_t bytes = 0;     ///< bytes of values read from both sides

  /// The share of the compared values that could be judged, from 0 to 1.
  double judged() const;
};

/// Compares two dumps. Error(Data) for paths that are not dumps, Error(Usage) for a reference of another network or with non-finite values.
/// Values that cannot be compared are reported in the result.
DumpComparison compare_dumps(const std::filesystem::path& a, const std::filesystem::path& b, const CompareOptions& options = {});

// Reports of a comparison of dumps: as text, JSON and a page (report_of), and as a table for users of msprobe (to_csv).

/// Reports the verdict, the first difference and its cause, and the values: the worst ones as text, all of them on the page and in the JSON
/// document. The report refers to the comparison, which must outlive it.
Report report_of(const DumpComparison& comparison);

/// Writes one row for each pair in call order, with the columns of msprobe 26.2 (MindStudio Probe, msprobe/core/common/const.py,
/// CompareConst) in the same order: those of its mode "tensor" if values were compared, otherwise those of "statistics" or "md5". A is
/// msprobe's "NPU" side, and B is its "Bench" side. A column for which we have no data (NPU_Stack_Info) is N/A. Our own columns follow,
/// from `Step` to `Message`. The column `Result` (pass, warning, error; N/A for entries on one side only) follows msprobe's rules, and
/// `Verdict` follows ours.
std::string to_csv(const DumpComparison& comparison);

}  // namespace npu_train
