/// A private folder for temporary files.
#pragma once

#include <filesystem>

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
