// The files that training runs wrote into their folders, and a report on them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_node.hpp"
#include "npu_train/io/csv.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/tools/align/monitor_log.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train::cli {

/// The records of a run's section `monitor`.
struct MonitorRecord {
  MonitorLog log{};
  std::vector<BandExit> exits{};
};

/// The files of one run; it may still be running.
struct RunRecord {
  std::string name{};  ///< the folder, without the beginning that the folders of all runs share
  ConfigNode config{};
  CsvTable rows{};                                   ///< metrics.csv
  std::vector<double> steps{};                       ///< the column step of the rows
  Json history{};                                    ///< history.json; null before the end of the first epoch
  std::map<std::string, std::string> environment{};  ///< empty if there is no environment.json
  std::optional<MonitorRecord> monitor{};            ///< monitor.csv
  std::string monitor_error{};                       ///< the reason why an existing monitor.csv was not read
  bool diverged = false;                             ///< the run ended with an error and saved its state in the folder diverged
  std::vector<std::string> overflow{};               ///< sentences about the last overflow that was explained
};

/// Reads run folders. Error(Data) for a folder without config.yaml or metrics.csv, and for damaged files other than monitor.csv;
/// Error(Usage) if a folder is given twice. The last row of metrics.csv is omitted if it is incomplete because it is being written.
std::vector<RunRecord> read_runs(const std::vector<std::string>& folders);

/// Returns a report. The report of one run contains results, curves, epochs, configuration and environment. The report of several runs
/// contains their results and curves side by side, and the settings that differ.
Report report_of(const std::vector<RunRecord>& runs);

/// Adds the records of the section `monitor`: the first gradient norm outside of its band, and norms by step and layer.
void add_monitors(Report& out, const std::vector<RunRecord>& runs);

}  // namespace npu_train::cli
