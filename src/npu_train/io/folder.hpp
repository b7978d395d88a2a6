/// Folders with several files: atomic removal, links.
#pragma once

#include <filesystem>

namespace npu_train {

/// Removes a folder with its content. If the process is killed meanwhile, a temporary folder may remain for remove_leftovers(), but never a
/// partial folder under the original name. Error(Checkpoint) if it cannot be removed.
void remove_folder(const std::filesystem::path& folder);

/// Creates the symbolic link `path`, or redirects it in one step. Error(Checkpoint) on failure.
void set_link(const std::filesystem::path& path, const std::filesystem::path& target);

}  // namespace npu_train

namespace npu_train::detail {

/// A private folder in the system's folder for temporary files; the destructor removes it. Error(Checkpoint), from `where`, if it cannot be
/// created.
class ScratchFolder {
 public:
  explicit ScratchFolder(const char* where);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path path;
};

}  // namespace npu_train::detail
