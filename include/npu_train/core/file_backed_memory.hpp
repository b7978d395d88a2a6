/// Host memory for a model that is larger than the memory of its process: large tensors are in files without a name, which the kernel
/// writes to their disk when memory is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace npu_train {

/// While one lives, tensors of the CPU that its thread makes, from kLeast bytes on, are shared mappings of files in a folder. Their space
/// is reserved when they are made, so a full disk is an Error(OutOfMemory) then and no crash later. Other threads and smaller tensors are
/// not affected. A tensor may outlive the scope, and gives its file back when it is freed, in any thread. Scopes nest; the innermost
/// counts.
class FileBackedMemory {
 public:
  static constexpr size_t kLeast = 64 << 10;
  static constexpr int64_t kAlways = std::numeric_limits<int64_t>::max();

  /// Large tensors are in memory as long as `keep_free` bytes of the process's memory stay free (free_host_bytes()), and then in files;
  /// kAlways: always in files. Each has pages of its own, which return to the system with it, so that no heap keeps the size of the model.
  explicit FileBackedMemory(std::string folder, int64_t keep_free = kAlways);
  /// For tensors whose content is never read, as those of a model that is only counted: from kLeastShared bytes on all of them are the same
  /// pages, over and over, so a model of any size takes some megabytes, and what is written to one tensor is read from the others.
  struct SharedPages {};
  static constexpr size_t kLeastShared = 1 << 20;
  explicit FileBackedMemory(SharedPages pages);
  ~FileBackedMemory();
  FileBackedMemory(const FileBackedMemory&) = delete;
  FileBackedMemory& operator=(const FileBackedMemory&) = delete;

  /// The scope of the calling thread, or nullptr.
  static const FileBackedMemory* current();
  /// Bytes of all tensors of the process that are in files now.
  static size_t in_use();
  /// The first folder that can be written to and is on a disk, not in memory (tmpfs); "" if none is.
  static std::string folder_on_disk(const std::vector<std::string>& folders);
  /// The same of the folder for temporary files (TMPDIR), /var/tmp and `another`.
  static std::string temporary_folder(const std::string& another = "");

  const std::string& folder() const { return folder_; }
  /// Bytes that large tensors of the thread can still get, on the disk and in memory.
  int64_t room() const;
  /// Bytes that this scope has put into files so far, with those of tensors that were freed.
  size_t taken() const { return taken_; }

 private:
  class Allocator;
  size_t least() const { return shares_pages_ ? kLeastShared : kLeast; }
  bool in_file(size_t bytes) const;

  std::string folder_;
  bool shares_pages_ = false;
  int64_t keep_free_;
  size_t taken_ = 0;
  FileBackedMemory* outer_;
};

}  // namespace npu_train
