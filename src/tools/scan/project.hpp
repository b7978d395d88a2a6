// The files of a project, read as text for the scan and the rewrite.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/scan/file_scan.hpp"
#include "tools/scan/walk.hpp"

namespace npu_train::detail::scan {

/// Returns the folder with links in its name resolved. Error(Usage) if it is not a folder.
std::filesystem::path source_folder(const std::filesystem::path& folder);

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

/// Reads a file of the tree if it is source text by its name (or its first line). `why` receives the error.
ReadResult read_source(const std::filesystem::path& root, const WalkEntry& entry, uint64_t max_bytes, SourceFile& out, std::string& why);

}  // namespace npu_train::detail::scan
