// The holder of a FolderLock, as recorded in its file.
#pragma once

#include <optional>
#include <string>

namespace npu_train::detail {

struct LockHolder {
  std::string host;
  int64_t process = 0;
  std::string since;      // "2026-11-23 11:09:00 UTC"
  std::string machine;    // identifies one boot of one machine, also inside a container
  std::string processes;  // PID namespace of `process`
  std::string started;    // start time of the process, in the kernel's units
  int64_t beat = 0;       // incremented while the holder lives

  /// Returns "process 4711 on host node7 since 2026-11-23 11:09:00 UTC".
  std::string str() const;
  std::string file() const;
};

/// Describes this process.
LockHolder this_holder();
/// Returns nullopt for text that LockHolder::file() did not write.
std::optional<LockHolder> parse_holder(const std::string& text);
/// Whether the process of a holder on this machine is alive; nullopt if that cannot be determined from here.
std::optional<bool> lives(const LockHolder& holder);

}  // namespace npu_train::detail
