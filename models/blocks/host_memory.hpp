// The memory of the host, for networks that may be larger than it.
#pragma once

#include <cstdint>

namespace npu_train::detail {

// Error(OutOfMemory) if `parameters` in fp32 need more than is free: memory, or memory and disk inside a FileBackedMemory. Without the
// check the system would end the process, because it reserves pages of memory only as they are written.
void check_host_memory(const char* network, int64_t parameters);

}  // namespace npu_train::detail
