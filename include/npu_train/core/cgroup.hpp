/// The resource limits of the Linux control groups of this process, versions 1 and 2. Containers and batch systems set these limits; other
/// files of the kernel report the resources of the complete machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace npu_train {

/// The tightest limits on the path from the group of the process to the root.
struct CgroupLimits {
  std::optional<double> cpus;             ///< CPU time: quota / period
  std::optional<int64_t> cpuset;          ///< number of processors that the group may use
  std::optional<int64_t> memory;          ///< bytes
  int64_t memory_used = 0;                ///< bytes of that limit in use, without file pages that the kernel can drop
  int64_t oom_kills = 0;                  ///< of the group of the process, version 2 only
  std::string cpu_file{}, memory_file{};  ///< the files with the limits

  /// How many of `processors` the process can keep busy: at least 1; a fraction of a processor counts as one.
  int64_t usable_cpus(int64_t processors) const;
};

/// Returns the text of a small file by its absolute path, or nothing if it cannot be read.
using SystemFiles = std::function<std::optional<std::string>(const std::string& path)>;

/// The limits from /proc/self/cgroup and /sys/fs/cgroup; without `files`, those of this machine. A container may not see the path of its
/// own group; then the groups above it that it sees count. Missing or malformed content means no limit.
CgroupLimits cgroup_limits(const SystemFiles& files = {});

}  // namespace npu_train
