/// Files that grow by complete pieces: logs.
#pragma once

#include <signal.h>

#include <string>
#include <string_view>

namespace npu_train {

/// Beyond the limit on file sizes (`ulimit -f`) the kernel sends a signal that ends the process. While this object lives, the signal is
/// blocked in its thread, so that the write fails with EFBIG instead; the program's own handling of the signal does not change.
class HoldSizeSignal {
 public:
  HoldSizeSignal();
  ~HoldSizeSignal();
  HoldSizeSignal(const HoldSizeSignal&) = delete;
  HoldSizeSignal& operator=(const HoldSizeSignal&) = delete;

 private:
  sigset_t set_{};
  sigset_t before_{};
};

/// A file to which pieces are appended, each one completely or not at all, without a buffer in between: a program that is killed leaves
/// every piece that it wrote.
class AppendFile {
 public:
  /// Creates the file if it is missing. Error(Checkpoint) if it cannot be opened for writing.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Error(Checkpoint) if the disk does not accept the complete piece; the file then ends where it ended before, and a later piece may
  /// succeed.
  void write(std::string_view piece);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace npu_train
