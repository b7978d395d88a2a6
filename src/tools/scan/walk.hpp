// Lists the files and links of a tree in a fixed order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train::detail::scan {

/// The folder with the report of a rewrite, and a file in it by which it is distinguished from a folder of the project.
inline constexpr const char* kReportFolder = "npu_migration";
inline constexpr const char* kReportLog = "log.json";
/// Whether a rewrite has written the folder.
bool is_report(const std::filesystem::path& folder);

struct WalkEntry {
  enum class Kind { File, Folder, Link, Other };
  std::string path;  // relative, with '/'
  Kind kind = Kind::File;
  uint64_t bytes = 0;    // size of a file
  bool skipped = false;  // a folder without the project's own text (version control, builds, caches), or an entry in such a folder
};

struct WalkOptions {
  size_t max_entries = 1'000'000;
  bool into_skipped = false;  ///< also list the contents of skipped folders
};

/// Returns the entries of `folder`, sorted by path, without reports of a rewrite; links are listed and never followed. Unreadable entries
/// are added to `unreadable`. Error(Data) if there are more entries than allowed.
std::vector<WalkEntry> walk(const std::filesystem::path& folder, const WalkOptions& options, std::vector<std::string>& unreadable);

}  // namespace npu_train::detail::scan
