/// Reads the tables of operators that msprof writes on an Ascend NPU, and shows them next to the operators of a profile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// All launches of one kernel.
struct DeviceKernel {
  std::string type;      ///< type in msprof's tables: "MatMulV2"
  std::string function;  ///< the aclnn function that launched it: "aclnnMm"; "" if the table does not name it
  std::string core;      ///< "AI_CORE", "AI_VECTOR_CORE", "AI_CPU", "HCCL"
  int64_t count = 0;
  double seconds = 0;
};

struct MsprofTable {
  std::vector<std::string> files;
  std::vector<DeviceKernel> kernels;  ///< longest first
};

/// Reads op_summary_*.csv or op_statistic_*.csv (CANN 6 to 9; https://www.hiascend.com/document, "op_summary", "op_statistic"): one file,
/// or all files of one kind below a folder such as PROF_* or its mindstudio_profiler_output. If the folder has both kinds, only op_summary
/// is read, because it names the functions. Error(Usage) if a folder has neither kind; Error(Data) for a file that cannot be read and, with
/// file and line, for other columns and for times that are not numbers.
MsprofTable read_msprof(const std::filesystem::path& path);

/// Merges the operators of a profile.json (trainer.profiler=chrome) with the kernels, by operator. `where` names the profile in messages.
/// Error(Usage) for a profile without operators.
Report merged_report(const Json& profile, const std::string& where, const MsprofTable& table);

}  // namespace npu_train
