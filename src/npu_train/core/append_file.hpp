/// Log files that grow by complete pieces.
#pragma once

#include <string>
#include <string_view>

namespace npu_train {

/// A file to which each piece is appended completely or not at all. Pieces are not buffered: if the program is killed, every written piece
/// remains.
class AppendFile {
 public:
  /// Creates the file if it is missing. Error(Checkpoint) if it cannot be opened for writing.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Appends a piece. Error(Checkpoint) if the disk does not accept all of it; the file is then truncated to its previous end, and a later
  /// piece may succeed.
  void write(std::string_view piece);

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace npu_train
