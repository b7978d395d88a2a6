// The three files that report the changes of a rewrite and the remaining ones.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/io/file.hpp"
#include "npu_train/tools/scan/rewrite.hpp"
#include "tools/scan/file_scan.hpp"

namespace npu_train::detail::scan {

/// Writes log.json and changes.diff while files are copied, so that memory use does not grow with the project.
class RewriteLog {
 public:
  /// `folder` receives the report; `source` is the displayed path of the project.
  RewriteLog(const std::filesystem::path& folder, const std::string& source);
  void add(const SourceFile& file, const std::vector<Hit>& hits);
  /// Adds a file that the project does not have.
  void add_file(const std::string& path, std::string_view text);
  void finish(const Rewrite& totals);

 private:
  AtomicFile log_, diff_;
  bool first_ = true;
};

/// Returns the content of todo.md.
std::string todo_text(const Rewrite& rewrite);

}  // namespace npu_train::detail::scan
