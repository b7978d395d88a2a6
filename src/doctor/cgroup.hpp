// What the control group of this process allows it, in versions 1 and 2 and on machines without any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "npu_train/doctor/host_view.hpp"

namespace npu_train::detail {

struct CgroupLimits {
  std::optional<double> cpus;     // quota / period
  std::optional<int64_t> memory;  // bytes
  int64_t memory_used = 0;        // of it, without what can be dropped (inactive file pages)
  int64_t oom_kills = 0;
  std::string cpu_file, memory_file;  // where the limit stood
};

// The tightest limits on the way from the group of the process to the root. In a container without a namespace of its own the path names
// folders that are not there; then those above count.
CgroupLimits cgroup_limits(const HostView& host);

}  // namespace npu_train::detail
