// npu_tool analyze CONFIG: looks up the operators of a run for an NPU, or runs it on a device.
#pragma once

#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/tools/analyze/analysis.hpp"

namespace npu_train::cli {

struct AnalyzeArguments {
  std::vector<std::string> words;  // CONFIG key=value ...
  AnalysisOptions options;
  std::string device, html, hbm;
  size_t rows = 30;
  bool json = false;
};

// Returns the exit status: 0, or 7 if a finding blocks the migration.
int analyze_config(const AnalyzeArguments& args, const Parts& parts);
// Like analyze_config(), for `--try DEVICE`.
int analyze_trial(const AnalyzeArguments& args, const Parts& parts);

}  // namespace npu_train::cli
