/// A folder of one's own for files that nobody keeps.
#pragma once

#include <filesystem>

namespace npu_train::detail {

/// Under the system's folder for temporary files; removed at the end. Error(Checkpoint), from `where`, when it cannot be made.
class ScratchFolder {
 public:
  explicit ScratchFolder(const char* where);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path path;
};

}  // namespace npu_train::detail
