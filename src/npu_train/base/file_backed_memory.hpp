/// Host memory for a model that exceeds the memory of its process: large tensors are mappings of unnamed files, which the kernel writes to
/// disk when memory is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace npu_train {

/// In its scope, CPU tensors of at least kLeast bytes that this thread allocates are shared mappings of files in a folder. Their space is
/// reserved on allocation, so that a full disk is an Error(OutOfMemory) and not a crash later. A tensor may outlive the scope, and any
/// thread may free it; its file is freed with it. Scopes nest; the innermost one applies.
class FileBackedMemory {
 public:
  static constexpr size_t kLeast = 64 << 10;
  static constexpr int64_t kAlways = std::numeric_limits<int64_t>::max();

  /// Allocates large tensors in memory as long as `keep_free` bytes of the process's memory stay free (free_host_bytes()), and otherwise in
  /// files; kAlways: always in files. Each tensor has its own pages. They return to the system when the tensor is freed, unlike the pages
  /// of a heap.
  explicit FileBackedMemory(std::string folder, int64_t keep_free = kAlways);
  /// Shared memory for tensors whose content is never read, for example to count a model's parameters. All tensors of at least kLeastShared
  /// bytes map the same pages repeatedly: a model of any size takes some megabytes, and a write to one tensor is visible in the others.
  struct SharedPages {};
  static constexpr size_t kLeastShared = 1 << 20;
  explicit FileBackedMemory(SharedPages pages);
  ~FileBackedMemory();
  FileBackedMemory(const FileBackedMemory&) = delete;
  FileBackedMemory& operator=(const FileBackedMemory&) = delete;

  /// Returns the innermost scope of the calling thread, or nullptr.
  static const FileBackedMemory* current();
  /// Bytes of all tensors of the process that are currently in files.
  static size_t in_use();
  /// Returns the first folder that is writable and on a disk, not in memory (tmpfs); "" if none is.
  static std::string folder_on_disk(const std::vector<std::string>& folders);
  /// Returns the first folder on a disk among TMPDIR (or its default), /var/tmp and `another`.
  static std::string temporary_folder(const std::string& another = "");

  const std::string& folder() const { return folder_; }
  /// Bytes that this thread can still allocate for large tensors, in memory and on the disk.
  int64_t room() const;
  /// Bytes that this scope has allocated in files so far, including tensors that were freed.
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
