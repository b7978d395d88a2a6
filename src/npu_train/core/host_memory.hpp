/// The host memory that this process can still allocate.
#pragma once

#include <cstdint>

#include "npu_train/core/cgroup.hpp"

namespace npu_train {

/// Returns the bytes that can be allocated before the kernel refuses or ends a process: the least of three values: free memory and swap
/// space of the machine, the limit of the control groups, and the limit on private memory (`ulimit -d`). INT64_MAX if none is reported. By
/// default, reads the files of this machine.
int64_t free_host_bytes(const SystemFiles& files = {});

}  // namespace npu_train
