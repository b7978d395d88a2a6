// The files of a project, listed in a fixed order and read as text, for the scan and the rewrite.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {

/// Returns the folder with links in its name resolved. Error(Usage) if it is not a folder.
std::filesystem::path source_folder(const std::filesystem::path& folder);

/// The folder with the report of a rewrite, and the file that distinguishes it from a folder of the project.
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

/// Finds whether `import NAME` refers to a module in the tree: next to the file, or at the top or under src of the project.
class LocalModules {
 public:
  /// `root`: the name of the tree's folder, which is a module if it is itself a package.
  LocalModules(const std::vector<WalkEntry>& entries, const std::string& root);
  bool is_local(std::string_view file, std::string_view name) const;

 private:
  bool has(std::string_view folder, std::string_view name) const;
  std::set<std::string, std::less<>> modules_;  // "folder/name" of folder/name.py and folder/name/__init__.py
};

enum class ReadResult { Source, Other, Binary, TooLarge, Unreadable };

/// Reads a file of the tree if its name or its first line shows that it is source text. `why` receives the error.
ReadResult read_source(const std::filesystem::path& root, const WalkEntry& entry, uint64_t max_bytes, SourceFile& out, std::string& why);

}  // namespace npu_train::detail::scan
