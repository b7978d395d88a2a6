/// The resource limits that the Linux control groups (versions 1 and 2) set for this process. Containers and batch systems use them; other
/// kernel files report the resources of the complete machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace npu_train {

/// The tightest limits on the path from the group of the process to the root.
struct CgroupLimits {
  std::optional<double> cpus;             ///< CPU time in processors: quota / period
  std::optional<int64_t> cpuset;          ///< number of processors that the group may use
  std::optional<int64_t> memory;          ///< limit in bytes
  int64_t memory_used = 0;                ///< bytes in use of `memory`, without page cache that the kernel can drop
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

}  // namespace npu_train
