// CRC-32 as computed by zlib.
#pragma once

#include <cstdint>

namespace npu_train::detail {

// Returns the CRC-32 of memory; 0 for no bytes.
uint32_t crc32_of_bytes(const void* data, int64_t bytes);

// Combines the checksums of two consecutive pieces, the second with `bytes` bytes.
uint32_t crc32_joined(uint32_t first, uint32_t second, int64_t bytes);

}  // namespace npu_train::detail
