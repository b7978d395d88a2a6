// The pieces of a comparison of histories.
#pragma once

#include "npu_train/tools/align/history.hpp"

namespace npu_train::detail {

// Fills sentences, likely and advice of what was compared.
void explain_histories(HistoryComparison& comparison, const History& a, const History& b, const HistoryOptions& options);

// The mean relative difference of A's steps to B's that are `shift` later, by the same rule; nullopt where fewer than `least` are in both.
std::optional<double> mean_relative_at(const History& a, const History& b, int64_t shift, size_t least);

}  // namespace npu_train::detail
