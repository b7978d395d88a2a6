#include "tools/align/crc32.hpp"

#include <zlib.h>

namespace npu_train::detail {

uint32_t crc32_of_bytes(const void* data, int64_t bytes) {
  return static_cast<uint32_t>(::crc32_z(0, static_cast<const Bytef*>(data), static_cast<z_size_t>(bytes)));
}

uint32_t crc32_joined(uint32_t first, uint32_t second, int64_t bytes) {
  return static_cast<uint32_t>(::crc32_combine(first, second, static_cast<z_off_t>(bytes)));
}

}  // namespace npu_train::detail
