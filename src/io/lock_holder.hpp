// The holder of a FolderLock, as recorded in its file.
#pragma once

#include <optional>
#include <string>

namespace npu_train::detail {

struct LockHolder {
  std::string host;
  int64_t process = 0;
  std::string since;      // "2026-11-23 11:09:00 UTC"
  std::string machine;    // one boot of one machine, also seen from a container
  std::string processes;  // the namespace in which `process` is a number
  std::string started;    // of the process, in the kernel's count
  int64_t beat = 0;       // grows while the holder lives

  /// "process 4711 on host node7 since 2026-11-23 11:09:00 UTC".
  std::string str() const;
  std::string file() const;
};

/// The process that asks.
LockHolder this_holder();
/// nullopt for text that LockHolder::file() did not write.
std::optional<LockHolder> parse_holder(const std::string& text);
/// Whether the process of a holder on this machine lives; nullopt where that cannot be seen from here.
std::optional<bool> lives(const LockHolder& holder);

}  // namespace npu_train::detail
