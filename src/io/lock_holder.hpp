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
  std::string processes;  // PID namespace in which `process` is a number
  std::string started;    // start time of the process, in the kernel's units
  int64_t beat = 0;       // incremented as long as the holder lives

  /// Returns "process 4711 on host node7 since 2026-11-23 11:09:00 UTC".
  std::string str() const;
  std::string file() const;
};

/// Describes this process.
LockHolder this_holder();
/// Parses the text of LockHolder::file(); nullopt for other text.
std::optional<LockHolder> parse_holder(const std::string& text);
/// Returns whether the process of a holder on this machine is alive; nullopt if that cannot be determined from here.
std::optional<bool> lives(const LockHolder& holder);

}  // namespace npu_train::detail
