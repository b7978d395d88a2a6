/// A private folder for temporary files.
#pragma once

#include <filesystem>

namespace npu_train::detail {

/// Under the system's folder for temporary files; removed at the end. Error(Checkpoint), from `where`, if it cannot be created.
class ScratchFolder {
 public:
  explicit ScratchFolder(const char* where);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path path;
};

}  // namespace npu_train::detail
