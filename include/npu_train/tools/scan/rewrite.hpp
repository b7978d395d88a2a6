/// A copy of a project with the mechanical changes for Ascend NPUs applied, and a list of the remaining ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train {

struct RewriteOptions {
  ScanOptions scan{};
  /// Also replaces torch.nn.DataParallel by one process for each NPU. The changed code uses DistributedDataParallel on the device
  /// LOCAL_RANK, samplers that divide shuffled data among the ranks and are given the epoch, and a torch.save() that only rank 0 executes.
  /// The copy gets npu_distributed.py, which the changed files import, and run_distributed.sh. A project that starts several processes
  /// itself, or has no DataParallel, is rewritten without this.
  bool distributed = false;
};

struct Rewrite {
  std::string source, out;
  int64_t files = 0;  ///< copied files
  int64_t files_changed = 0;
  int64_t changes = 0;          ///< findings that were fixed
  std::string launcher;         ///< the script in the copy that starts one process for each NPU; "": not written
  std::string not_distributed;  ///< the reason why a requested launcher was not written; "" otherwise
  std::vector<std::string>
      by_hand;  ///< places that only a person can adapt to several ranks, as "file:line: text: advice" with lines of the copy; at most 100
  std::vector<std::string> left_out;  ///< omitted entries with the reason: links out of the project, pipes, sockets; at most 100
  SourceScan remaining;               ///< scan of the copy: the remaining manual changes
};

/// Copies `folder` to `out` and replaces the findings that `scan_source` marks as mechanical, token by token. Comments, documentation and
/// prose are unchanged, as are encodings, line ends, modes and all files that are not sources. CUDA sources (.cu) are only copied. `out`
/// also gets the folder npu_migration with
///
///     log.json       every change: file, line, rule, the line before and after
///     changes.diff   the same as a unified diff; `patch -p1` applies it to the original
///     todo.md        the remaining manual changes, with those for several processes, by file and line of the copy
///
/// Scans and rewrites skip such a folder, so rewriting a copy again has no effect. The original is only read. `out` appears completely or
/// not at all. Links inside the project are recreated; others are omitted and reported. Error(Usage) if `out` exists and is not an empty
/// folder, or if one of the two folders is inside the other; Error(Data) as for scan_source(), and for a file that cannot be read;
/// Error(Checkpoint) if `out` cannot be written.
Rewrite rewrite_source(const std::filesystem::path& folder, const std::filesystem::path& out, const RewriteOptions& options = {});

/// Reports the changes, and the headline of the remaining ones.
Report report_of(const Rewrite& rewrite);

}  // namespace npu_train
