// The two parts of compare_ranks(): checks of a single step, and statistics over all steps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "npu_train/tools/align/rank_comparison.hpp"
#include "tools/align/rank_notes.hpp"

namespace npu_train::detail {

// The notes of one step, by rank.
using RanksOfStep = std::map<int, RankNotes>;

// The kinds of faults in order of cause and effect.
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
// Returns the position of a kind in kFaultKinds.
size_t order_of(const std::string& kind);
std::string advice_for(const std::string& kind);

std::vector<RankFault> faults_of_step(int64_t step, const RanksOfStep& ranks);
std::vector<RankFault> faults_over_steps(const std::map<int64_t, RanksOfStep>& steps, const RankLimits& limits);

RankSummary summary_of(int rank, const std::map<int64_t, RanksOfStep>& steps);
// loss_of: mean loss of a rank's micro-batches in one step. gradient_of: norm of the rank's own gradients, over all parameters. Both are
// NaN without a batch.
double loss_of(const RankNotes& notes);
double gradient_of(const RankNotes& notes);

}  // namespace npu_train::detail
