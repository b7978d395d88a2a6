// The facts about the processors of a machine, from /proc and /sys.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "npu_train/core/cgroup.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train::detail {

struct CpuFacts {
  std::string model;                        // "" if unknown
  std::set<std::string> flags;              // as /proc/cpuinfo names them: avx2, asimd
  int online = 0;                           // processors in /proc/cpuinfo; 0: unreadable
  std::optional<std::vector<int>> allowed;  // that this process may run on
  CgroupLimits limits;
  std::vector<std::vector<int>> nodes;  // processors of each NUMA node that has some

  // How many may work at once for this process, at least 1.
  int usable() const;
};

CpuFacts cpu_facts(const HostView& host);

}  // namespace npu_train::detail
