// The files and links of a tree, in a fixed order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train::detail::scan {

/// Name of the folder that a rewrite puts its report into, and of a file in it that distinguishes it from a folder of the project.
inline constexpr const char* kReportFolder = "npu_migration";
inline constexpr const char* kReportLog = "log.json";
/// True for a folder that a rewrite has written.
bool is_report(const std::filesystem::path& folder);

struct WalkEntry {
  enum class Kind { File, Folder, Link, Other };
  std::string path;  // relative, with '/'
  Kind kind = Kind::File;
  uint64_t bytes = 0;    // of a file
  bool skipped = false;  // a folder that is not the project's own text (version control, builds, caches), or in such a folder
};

struct WalkOptions {
  size_t max_entries = 1'000'000;
  bool into_skipped = false;  ///< list what skipped folders hold too
};

/// The entries of `folder`, sorted by path, without reports of a rewrite; links are reported and never followed. Unreadable entries go to
/// `unreadable`.
/// Error(Data) for more entries than allowed.
std::vector<WalkEntry> walk(const std::filesystem::path& folder, const WalkOptions& options, std::vector<std::string>& unreadable);

}  // namespace npu_train::detail::scan
