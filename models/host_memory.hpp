// The memory of the host, for networks that may be larger than it.
#pragma once

#include <cstdint>

namespace npu_train::detail {

// Error(OutOfMemory) if `parameters` in fp32 need more memory than is free, in the machine and in the control group of the process.
// Without the check the system would end the process, because it reserves pages only as they are written.
void check_host_memory(const char* network, int64_t parameters);

}  // namespace npu_train::detail
