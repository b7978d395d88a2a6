/// This machine and this process: its name, its memory, the limits of its control groups and its command.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace npu_train {

/// Returns the name that the system reports, or "localhost".
inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// The resource limits that the Linux control groups (versions 1 and 2) set for this process. Containers and batch systems use them; other
// kernel files report the resources of the complete machine.

/// The tightest limits on the path from the group of the process to the root.
struct CgroupLimits {
  std::optional<double> cpus;             ///< CPU time in processors: quota / period
  std::optional<int64_t> cpuset;          ///< number of processors that the group may use
  std::optional<int64_t> memory;          ///< limit in bytes
  int64_t memory_used = 0;                ///< bytes of `memory` that are in use, without page cache that the kernel can drop
  int64_t oom_kills = 0;                  ///< number of processes that were killed in the process's group; version 2 only
  std::string cpu_file{}, memory_file{};  ///< files that contain the limits

  /// Returns how many of `processors` the process can keep busy, at least 1; a fraction of a processor counts as one.
  int64_t usable_cpus(int64_t processors) const;
};

/// Returns the content of a small file, given its absolute path, or nullopt if it cannot be read.
using SystemFiles = std::function<std::optional<std::string>(const std::string& path)>;

/// Reads /proc/self/cgroup and /sys/fs/cgroup, by default those of this machine. If a container cannot see its own group, the visible
/// parent groups count. Missing or malformed content means no limit.
CgroupLimits cgroup_limits(const SystemFiles& files = {});

/// Returns the bytes of the line "KEY:   123 kB" in a text such as /proc/meminfo or /proc/self/status; nullopt without such a line, and for
/// numbers below 0 or above 2^50.
std::optional<int64_t> kib_value(const std::string& text, const std::string& key);

/// Returns the bytes that can be allocated before the kernel refuses or ends a process. This is the least of three values: free memory and
/// swap space of the machine, the limit of the control groups, and the limit on private memory (`ulimit -d`). INT64_MAX if none of them is
/// reported. By default, reads the files of this machine.
int64_t free_host_bytes(const SystemFiles& files = {});

/// Returns the command as typed in a shell, with quotes where needed; "" if the system does not report it.
std::string command_line();

}  // namespace npu_train
