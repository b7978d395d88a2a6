/// One writer per folder, on local disks and on disks that several machines share.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

namespace npu_train {

/// The defaults are suitable for programs.
struct FolderLockOptions {
  double beat = 5;               ///< seconds between two signs of life, which are written if other machines can see the folder
  double patience = 30;          ///< seconds without a sign of life after which a holder on another machine counts as dead
  std::optional<bool> shared{};  ///< whether other machines can see the folder; nullopt: by the kind of its file system
  bool kernel_locks = true;      ///< false: as on a file system without them
};

/// A lock of a folder, held from the constructor to the destructor and not longer than the process lives.
///
/// The operating system's lock of the file `run.lock` decides between the processes of one machine: it ends with the process, however that
/// ends. The file names the holder: host, process, since when. On a network disk that lock may hold on one machine only, or not exist.
/// There the holder changes the file every `beat` seconds, and a process that finds the file of another machine first watches it for
/// `patience` seconds: clocks are not compared. Without a lock of the operating system, a holder on this machine is distinguished from a
/// later process with the same number by its start time.
class FolderLock {
 public:
  static constexpr const char* kFile = "run.lock";

  /// Error(Checkpoint) that names the holder if another process, or another object of this one, holds the lock, and if the folder
  /// cannot be written.
  explicit FolderLock(std::filesystem::path folder, const FolderLockOptions& options = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  const std::filesystem::path& folder() const;

  /// Error(Checkpoint) that names the holder if another process has taken the lock over. It may where the operating system's lock does not
  /// reach, if this process gave no sign of life for longer than `patience`: on a machine that was suspended, for example.
  void check_held() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
