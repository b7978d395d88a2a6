// Compares one step of two dumps: pairs, errors and verdicts.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/align/compare_parts.hpp"
#include "tools/align/match_calls.hpp"
#include "tools/align/noise_steps.hpp"

namespace npu_train::detail {

// The layers and gradients of one side.
class StepContent {
 public:
  explicit StepContent(const DumpStep& step);
  // Whether this side should have the gradients of `call`, a call of the other side, because this side has the same layer, and gradients of
  // other layers.
  bool lost_gradients(const DumpCall& call) const;
  // Whether this side should have the layer of `call`, a call of the other side, because the layer has parameters and the dump of this side
  // omits nothing.
  bool lost_layer(const DumpCall& call, const DumpStep& other) const;
  // Whether `own` has no tensors of `side` (output, parameters), although its counterpart `other` and other calls of the same dump have
  // such tensors.
  bool lost_side(const DumpCall& own, const DumpCall& other, const std::string& side) const;
  // Whether `backward` belongs to a call that received one tensor at several positions, and shows a gradient for each of them.
  bool shows_shares(const DumpCall& backward) const;

 private:
  const DumpStep& step_;
  std::set<std::string> layers_, graded_, directions_, sides_;  // graded_: layers with gradients of parameters
  std::map<std::string, const DumpCall*> forwards_;             // by layer and number
};

// All arguments are borrowed. `noise`: nullptr if no rounding is expected.
class StepComparer {
 public:
  StepComparer(const DumpStep& a, const DumpStep& b, const DumpStep* reference, const CompareOptions& options, NoiseSteps* noise);

  // `earlier_error`: see StepComparison.
  StepComparison run(int64_t& bytes, double earlier_error = 0);
  // Returns the number of compared tensors.
  int64_t tensors() const { return tensors_; }
  // Numbers of compared values: all, those without a counterpart in the reference, and those that are finite in both runs, but not in the
  // reference.
  struct ReferenceUse {
    int64_t values = 0, missing = 0, not_finite = 0;
    std::string first_not_finite{};
  };
  const ReferenceUse& reference_use() const { return reference_use_; }
  // Returns sentences about unknown names of the mapping, see CallMatch.
  const std::set<std::string>& unknown_names() const { return unknown_; }

 private:
  // One pair of items. All pairs are in a single list, so that threads share the work evenly.
  struct Job {
    ItemComparison* item;
    const CallComparison* call;
    const DumpItem* reference = nullptr;
  };

  void pair_call(int64_t i, int64_t j);
  void add_one_sided(CallComparison call, const DumpCall& any, bool in_a);
  void note_parameters(const CallPairs& pairs);
  bool shares_parameters(const DumpCall& call, bool in_a) const;
  const DumpItem* reference_of(size_t call, const ItemComparison& item) const;
  int64_t compare_one(const Job& job) const;
  int64_t compare_all(const std::vector<Job>& jobs) const;
  void finish(CallComparison& call);
  void note_reference(const Job& job);
  void add_error(const ItemComparison& item, CallComparison& call) const;

  static constexpr size_t kNone = static_cast<size_t>(-1);
  const DumpStep &a_, &b_;
  const CompareOptions& options_;
  NoiseSteps* noise_;
  ItemJudge judge_;
  StepContent in_a_, in_b_;
  ChosenCalls chosen_a_, chosen_b_;
  std::optional<ItemJudge> to_reference_a_, to_reference_b_;
  std::map<size_t, const DumpCall*> references_;  // calls of the reference, by index of the corresponding call in A
  std::vector<size_t> from_a_;                    // for each call of out_, its index in A, or kNone
  std::set<std::string> unknown_;
  std::map<std::string, std::string> layers_;  // see CallMatch
  std::set<int64_t> by_size_;                  // see CallMatch
  std::set<std::string> paired_a_, paired_b_;  // names of the parameters in paired forward calls
  ReferenceUse reference_use_;
  StepComparison out_;
  int64_t tensors_ = 0;
};

}  // namespace npu_train::detail
