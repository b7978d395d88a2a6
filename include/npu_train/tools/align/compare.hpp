/// Compares two dumps and tells where they part: which values differ by more than their precision explains, and which layer began it.
///
/// A layer *causes* a difference when what it gives differs though what it was given agrees; a layer *suffers* when the error came in with
/// its input. The two are told apart by amplification, the error of the outputs over that of the inputs, in the order of the calls.
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

namespace npu_train {

/// Two values agree when max|a - b| <= atol * s + rtol * max|b|. `s` is 1 for activations, weights and the optimizer's state; for gradients
/// it is the largest gradient of that kind (of values, of parameters) where that is smaller than 1, so that small ones cannot hide behind
/// atol.
struct Tolerance {
  double atol = 1e-5;
  double rtol = 1e-3;
};

/// The default for a pair: that of the coarser of two dtypes ("torch.float32"), or of what the run computes in where that is coarser still
/// (fp32 gradients of a bf16-mixed run are sums of bf16 numbers). fp32 (1e-5, 1e-3), fp16 (1e-3, 1e-2), bf16 (1e-2, 5e-2),
/// fp64 (1e-8, 1e-6), others 0.
Tolerance default_tolerance(const std::string& dtype_a, const std::string& dtype_b);

struct CompareOptions {
  std::optional<double> atol{}, rtol{};                              ///< for all dtypes, instead of the default
  std::vector<std::pair<std::string, Tolerance>> layer_tolerance{};  ///< by pattern of the call's name; the last that fits counts
  bool exact = false;                                                ///< only equal bits agree
  bool fuzzy = true;                                                 ///< match what is left over by layer, class or order alone
  std::map<std::string, std::string> mapping{};                      ///< layer or call of A -> of B
  double sample = 1.0;                                               ///< share of the pairs that is read, drawn by name and seed
  int64_t seed = 0;
  std::string layers{};               ///< last | sensitive (norms, softmax, loss, first and last layer) | a pattern; "" all
  std::vector<int64_t> steps{};       ///< empty: all
  std::string rank{};                 ///< "rank3"; "" all
  std::filesystem::path reference{};  ///< a third dump, of fp32, for tolerance in proportion; empty without
  double proportion = 2.0;            ///< times the other run's own error to the reference that is allowed
};

/// How two values differ.
struct ItemComparison {
  std::string a, b;  ///< names of the items; "" where one side has none
  std::string side;  ///< input | output | parameters | parameters_grad
  DumpItem item_a{}, item_b{};
  enum class Kind { Tensor, Statistics, Checksum, Value, OneSided, Unmatched, NotCompared } kind = Kind::Value;
  PairMetrics metrics{};  ///< Kind::Tensor
  /// What amplification is computed from: |a - b| / |b| in the L2 norm, or from the statistics the largest of what they tell of it;
  /// inf where one is not finite and the other is. 0: equal.
  double error = 0;
  double reference_error_a = -1, reference_error_b = -1;  ///< of each to the reference; -1 without
  bool failed = false;
  bool rounding = false;    ///< beyond its tolerance by no more than rounding explains (see docs/compare.md); does not count as failed
  bool unreadable = false;  ///< a file of its values is damaged, missing or no file; counts as failed
  bool unproven = false;    ///< not finite on both sides, and what the step comes to is not either; counts as failed
  /// Elements that `metrics` leaves out: their gradient is nothing but rounding on both sides, and so is what an optimizer made of it.
  int64_t noise_elements = 0;
  std::string message{};  ///< why it failed, or why it was not compared
};

/// One call of both sides.
struct CallComparison {
  std::string a, b;
  std::string layer, type, direction;
  double input_error = 0, parameter_error = 0, output_error = 0;
  double moved_error = 0;  ///< of running statistics, in proportion to the spread of the values that they are of
  double noise_error = 0;  ///< of parameters with ItemComparison::noise_elements, these included
  std::vector<ItemComparison> items{};
  bool failed = false;
  double noise = 0;  ///< the relative error that rounding may give a call in the precision of these runs
  /// Error of the outputs over that of the inputs, at least the noise each.
  double amplification = 1;
};

/// Where two runs part.
struct Divergence {
  bool found = false;
  int64_t step = 0;
  std::string rank;
  std::string call, layer, type, direction;
  /// NotProven: both runs have NaN from here on. Model: they are of other networks. Unreadable: files of values cannot be read, and nothing
  /// else differs.
  enum class Cause { Input, Weights, Layer, Before, Gradient, Optimizer, NotFinite, NotProven, Model, Unreadable } cause = Cause::Layer;
  double input_error = 0, output_error = 0;
  bool within_tolerance = false;  ///< the runs agree, and this is where they are not equal
  std::string sentence;           ///< what was seen
  std::vector<std::string> likely{}, advice{};
};

struct StepComparison {
  int64_t step = 0;
  std::string rank;
  std::vector<CallComparison> calls{};  ///< in the order of A
  bool complete_a = true, complete_b = true;
  int64_t compared = 0, failed = 0, rounding = 0, one_sided = 0, skipped = 0, not_compared = 0;
  int64_t unproven = 0, unreadable = 0;  ///< of `failed`
  int64_t other_places = 0;              ///< of `rounding`: what fused kernels show of another place of the network
  /// What ItemComparison::noise_elements left out of weights (before and after the step), of the optimizer's state and of gradients.
  int64_t noise_weights = 0, noise_state = 0, noise_gradients = 0;
  double carried_error = 0;  ///< the worst relative error of a weight that the steps before explain
  bool drifted = false;      ///< weights came in with what updates made of rounding; see docs/compare.md
  /// Norms of which one side shows another place of the network, as fused kernels do, though the calls that are compared do not prove it.
  std::set<std::string> unproven_places{};
  /// Modules whose parameters both have, in layers that are cut otherwise: one fused weight here, three weights there.
  std::vector<std::string> regrouped{};
  std::vector<std::string> notes{};
};

struct DumpComparison {
  std::string a, b, reference;
  std::map<std::string, std::string> facts_a{}, facts_b{};
  std::vector<StepComparison> steps{};
  std::vector<std::string> notes{};  ///< steps of one side only, cut dumps, samples
  Divergence first;
  bool agrees = true;    ///< nothing that was compared differs, and no gradient and no layer with parameters is missing
  bool complete = true;  ///< both have the same calls and steps, and all was compared
  bool sampled = false;  ///< a part was read: agreement is that of the part
  int64_t bytes = 0;     ///< of values that were read, both sides
};

/// Error(Data) for what are no dumps, Error(Usage) for a reference that is of another network or not finite; what cannot be compared is
/// told in the result.
DumpComparison compare_dumps(const std::filesystem::path& a, const std::filesystem::path& b, const CompareOptions& options = {});

}  // namespace npu_train
