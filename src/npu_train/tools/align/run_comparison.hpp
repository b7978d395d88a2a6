/// Compares the files of two runs: loss history, configuration, environment, or complete run folders.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/tools/align/config_diff.hpp"
#include "npu_train/tools/align/history.hpp"
#include "npu_train/tools/align/monitor_comparison.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

struct RunComparison {
  std::string a, b;
  std::optional<HistoryComparison> history{};
  std::optional<std::vector<ConfigDifference>> config{}, environment{};
  std::optional<MonitorComparison> monitor{};
  std::vector<std::string> notes{};

  /// Whether the runs agree. If there are histories, they decide: runs with different configurations may agree, and the verdict reports the
  /// differences. Without histories, two monitors decide. Otherwise the runs agree if no difference may change numbers.
  bool agrees() const;
};

/// Completes a configuration with defaults. For a configuration of another program, returns nullopt and sets `why` to the reason.
using CompleteConfig = std::function<std::optional<ConfigNode>(const ConfigNode& config, std::string& why)>;

/// Options of compare_runs(). Configurations are completed if that is possible for both; otherwise they are compared as written.
struct RunComparisonOptions {
  HistoryColumns columns_a{}, columns_b{};
  HistoryOptions history{};
  CompleteConfig complete_config{};
};

/// Returns the kind of a path in words: "a run folder", "a loss history", "a configuration", "an environment", "a monitor"; "" for other
/// paths.
std::string kind_of_run_file(const std::filesystem::path& path);

/// Compares two paths of the same kind: run folders, histories (.csv, .json, .jsonl), configurations (.yaml), environments
/// (environment.json), monitors (monitor.csv). For a run folder and a history, the histories are compared. Error(Usage) otherwise.
RunComparison compare_runs(const std::filesystem::path& a, const std::filesystem::path& b, const RunComparisonOptions& options = {});

/// Reports the worst steps as text, and all steps on the page. The report refers to the comparison, which must outlive it.
Report report_of(const RunComparison& comparison);
/// Writes step, loss and learning rate of both sides, one row per step; for monitors one row per tensor.
std::string to_csv(const RunComparison& comparison);

}  // namespace npu_train
