// Checksum and decompression for zip archives: both with zlib in deflate.cpp, only the checksum in no_deflate.cpp (NPU_TRAIN_IMAGES=OFF).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace npu_train::detail {

// Returns the CRC-32 of zip archives.
uint32_t zip_crc32(const void* data, uint64_t bytes);

// Inflates the deflate stream whose pieces `next` returns (an empty piece at its end) into the `size` bytes at `out`. Returns an error
// message, or "".
std::string inflate_pieces(const std::function<std::string()>& next, void* out, uint64_t size);

}  // namespace npu_train::detail
