/// One writer to a folder, on disks of one machine and on those that several share.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

namespace npu_train {

/// The defaults are right for a program.
struct FolderLockOptions {
  double beat = 5;               ///< seconds between two signs of life, which are written where other machines can see the folder
  double patience = 30;          ///< seconds without one after which a holder on another machine counts as dead
  std::optional<bool> shared{};  ///< whether other machines can see the folder; nullopt: by the kind of its file system
  bool kernel_locks = true;      ///< false: as on a file system that has none
};

/// A lock of a folder, held from the constructor to the destructor and not longer than the process lives.
///
/// The operating system's lock of the file `run.lock` decides between the processes of one machine: it goes with the process, however that
/// ends. The file names the holder: host, process, since when. On a network disk that lock may hold on one machine only, or not exist.
/// There the holder changes the file every `beat` seconds, and who finds the file of another machine watches it for `patience` seconds
/// first: no clock is compared. Without a lock of the operating system, a holder on this machine is told from a later process of its number
/// by the time of its start.
class FolderLock {
 public:
  static constexpr const char* kFile = "run.lock";

  /// Error(Checkpoint) that names the holder when another process, or another object of this one, holds the lock, and when the folder
  /// cannot be written.
  explicit FolderLock(std::filesystem::path folder, const FolderLockOptions& options = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  const std::filesystem::path& folder() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
