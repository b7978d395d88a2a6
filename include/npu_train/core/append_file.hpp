/// Files that grow by complete pieces: logs.
#pragma once

#include <string>
#include <string_view>

namespace npu_train {

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
