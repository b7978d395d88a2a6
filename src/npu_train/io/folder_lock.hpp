/// A lock that allows one writer per folder, on local disks and on disks that several machines share.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

namespace npu_train {

/// Options of FolderLock; the defaults suit most programs.
struct FolderLockOptions {
  double beat = 5;               ///< seconds between heartbeats, which are written if other machines can see the folder
  double patience = 30;          ///< seconds without a heartbeat after which a holder on another machine counts as dead
  std::optional<bool> shared{};  ///< whether other machines can see the folder; nullopt: follows from the type of its file system
  bool kernel_locks = true;      ///< false: behave as on a file system without kernel locks
};

/// A lock of a folder, held by this object and released when the process ends, however that happens.
///
/// On one machine, the kernel's lock on the file `run.lock` decides. The file describes the holder: host, process, and time of locking. On
/// a network disk, kernel locks may be local to a machine or missing. The holder therefore updates the file every `beat` seconds. A process
/// that finds another machine's file first watches it for `patience` seconds, so that no clocks are compared. Without kernel locks, the
/// start time of a process distinguishes a holder on this machine from a later process with the same number.
class FolderLock {
 public:
  static constexpr const char* kFile = "run.lock";

  /// Error(Checkpoint), with the holder, if another process, or another object of this process, holds the lock. Error(Checkpoint) if the
  /// folder cannot be written.
  explicit FolderLock(std::filesystem::path folder, const FolderLockOptions& options = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  const std::filesystem::path& folder() const;

  /// Error(Checkpoint), with the new holder, if another process has taken the lock. Without common kernel locks, this can happen if this
  /// process wrote no heartbeat for longer than `patience`, for example because its machine was suspended.
  void check_held() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
