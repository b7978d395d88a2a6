// Parts of the comparison of histories.
#pragma once

#include "npu_train/tools/align/history.hpp"

namespace npu_train::detail {

// Fills `sentences`, `likely` and `advice` after a comparison.
void explain_histories(HistoryComparison& comparison, const History& a, const History& b, const HistoryOptions& options);

// Returns the mean relative difference of A's steps from B's if step_a = step_b + shift, by the rule of compare_histories(); nullopt for
// fewer than `least` steps.
std::optional<double> mean_relative_at(const History& a, const History& b, int64_t shift, size_t least);

}  // namespace npu_train::detail
