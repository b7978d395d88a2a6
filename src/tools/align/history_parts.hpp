// Parts of the comparison of histories.
#pragma once

#include "npu_train/tools/align/history.hpp"

namespace npu_train::detail {

// Fills the `sentences`, `likely` and `advice` of a comparison, whose other fields must be complete.
void explain_histories(HistoryComparison& comparison, const History& a, const History& b, const HistoryOptions& options);

// Returns the mean relative difference of the losses, by the rule of compare_histories(), if `shift` is added to the steps of B. Returns
// nullopt if the histories then have fewer than `least` common steps.
std::optional<double> mean_relative_at(const History& a, const History& b, int64_t shift, size_t least);

}  // namespace npu_train::detail
