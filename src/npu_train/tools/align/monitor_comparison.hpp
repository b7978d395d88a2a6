/// Compares the records of two runs' monitors, and finds where the runs first differ.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/tools/align/history.hpp"

namespace npu_train {

/// The norms of one tensor in both runs. Differences are relative to B: |a - b| / max(|b|, 0.01 m), where m is the median norm of B's
/// tensors of this kind in the same window, so that the noise of norms near 0 does not decide.
struct MonitorDifference {
  std::string what{}, name{};
  int64_t attempt = 0, step = 0;  ///< the window and step of this difference
  double norm_a = 0, norm_b = 0;  ///< norms in that window
  double relative = 0;            ///< difference in that window; inf if only one side is finite, 0 if neither is
  double mean_relative = 0;       ///< mean difference over all common windows
};

struct MonitorComparison {
  std::string a, b;
  int64_t windows = 0;                          ///< windows that both recorded
  int64_t windows_a = 0, windows_b = 0;         ///< windows of one side only
  std::vector<MonitorDifference> tensors{};     ///< the tensors of both runs in the order of the computation, each with its largest
                                                ///< difference
  std::vector<std::string> only_a{}, only_b{};  ///< tensors of one side only, such as "gradients of fc.weight"
  double mean_relative = 0;                     ///< mean difference over all common rows
  std::optional<MonitorDifference>
      first_unequal{};  ///< first statistic that differs in any digit: by window, then in the order of the computation
  std::optional<MonitorDifference> first_beyond{};  ///< first norm that differs by more than HistoryOptions::step_rtol
  bool agrees = true;  ///< `mean_relative` is within HistoryOptions::mean_rtol, and no norm is finite on one side only
};

/// Compares two files monitor.csv. Error(Data) if they have no tensor of the same window in common.
MonitorComparison compare_monitors(const std::filesystem::path& a, const std::filesystem::path& b, const HistoryOptions& options = {});

/// Returns observations, the most important first.
std::vector<std::string> sentences_of(const MonitorComparison& comparison);

}  // namespace npu_train
