// CRC-32 as zlib computes it.
#pragma once

#include <cstdint>

namespace npu_train::detail {

// Of memory; that of nothing is 0.
uint32_t crc32_of_bytes(const void* data, int64_t bytes);

// Of two pieces one behind the other, the second of `bytes`.
uint32_t crc32_joined(uint32_t first, uint32_t second, int64_t bytes);

}  // namespace npu_train::detail
