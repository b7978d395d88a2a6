// Checks that a large network fits into the host's memory.
#pragma once

#include <cstdint>

namespace npu_train::detail {

// Throws Error(OutOfMemory) if `parameters` in fp32 need more than the free memory (inside a FileBackedMemory: memory and disk). Without
// this check the kernel would kill the process, because it reserves pages only when they are written.
void check_host_memory(const char* network, int64_t parameters);

}  // namespace npu_train::detail
