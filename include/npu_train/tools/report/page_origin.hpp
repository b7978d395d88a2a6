/// The origin of a page: the last line of each page that a program writes.
#pragma once

#include <filesystem>
#include <string>

namespace npu_train {

struct PageOrigin {
  std::string date;     ///< "2026-05-31 17:04 UTC"
  std::string command;  ///< command that wrote the page; may be empty
  std::string version;  ///< version of the library

  /// Returns the origin of this process at this time.
  static PageOrigin here();
};

/// Returns HtmlPage::str() with a footer that names the origin.
std::string with_origin(const std::string& page, const PageOrigin& origin);

/// Writes a page with the origin of this process, like write_file_atomic().
void write_page(const std::filesystem::path& path, const std::string& page);

}  // namespace npu_train
