// Facts about the processors of a machine, from /proc and /sys.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "npu_train/core/host.hpp"
#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train::detail {

struct CpuFacts {
  std::string model;                        // "" if unknown
  std::set<std::string> flags;              // names as in /proc/cpuinfo: avx2, asimd
  int online = 0;                           // processors in /proc/cpuinfo; 0: unreadable
  std::optional<std::vector<int>> allowed;  // processors on which this process may run
  CgroupLimits limits;
  std::vector<std::vector<int>> nodes;  // processors of each NUMA node with processors

  // Number of processors that can work for this process at the same time, at least 1.
  int usable() const;
};

CpuFacts cpu_facts(const HostView& host);

}  // namespace npu_train::detail
