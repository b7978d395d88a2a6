/// The memory that this process can still get from its host.
#pragma once

#include <cstdint>

#include "npu_train/core/cgroup.hpp"

namespace npu_train {

/// Bytes that the kernel can give without ending a process or refusing them: of the machine (with its swap space), of the control groups of
/// the process, and of its limit of private memory (`ulimit -d`). The largest number if nothing is reported. Without `files`, those of this
/// machine.
int64_t free_host_bytes(const SystemFiles& files = {});

}  // namespace npu_train
