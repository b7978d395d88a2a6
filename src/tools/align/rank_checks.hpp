// The two halves of compare_ranks(): what must be equal in a step, and what must be alike over all steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "npu_train/tools/align/rank_comparison.hpp"
#include "tools/align/rank_notes.hpp"

namespace npu_train::detail {

// The ranks of one step, by rank.
using RanksOfStep = std::map<int, RankNotes>;

// The kinds of faults in the order of cause and effect.
inline constexpr const char* kFaultKinds[] = {"weights before the step",
                                              "random numbers",
                                              "data",
                                              "loss",
                                              "gradient norm",
                                              "all-reduce",
                                              "reduced gradient",
                                              "clip factor",
                                              "schedule",
                                              "weights after the step"};
// The place of a kind among them.
size_t order_of(const std::string& kind);
std::string advice_for(const std::string& kind);

std::vector<RankFault> faults_of_step(int64_t step, const RanksOfStep& ranks);
std::vector<RankFault> faults_over_steps(const std::map<int64_t, RanksOfStep>& steps, const RankLimits& limits);

RankSummary summary_of(int rank, const std::map<int64_t, RanksOfStep>& steps);
// Of one rank in one step: the mean over its micro-batches, and the norm over all parameters; NaN without a batch.
double loss_of(const RankNotes& notes);
double gradient_of(const RankNotes& notes);

}  // namespace npu_train::detail
