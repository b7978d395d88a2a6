// 32-bit cyclic redundancy checks, one byte at a time: for short records, and for libraries without zlib.
#pragma once

#include <array>
#include <cstdint>

namespace npu_train::detail {

class CrcTable {
 public:
  // `polynomial` is bit-reversed: 0xedb88320 for zip archives, 0x82f63b78 for CRC-32C.
  explicit constexpr CrcTable(uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      rests_[byte] = byte;
      for (int bit = 0; bit < 8; ++bit) rests_[byte] = rests_[byte] >> 1 ^ ((rests_[byte] & 1) != 0 ? polynomial : 0);
    }
  }
  uint32_t of(const void* data, uint64_t bytes) const {
    uint32_t crc = 0xffffffffu;
    const auto* at = static_cast<const uint8_t*>(data);
    for (const auto* const end = at + bytes; at != end; ++at) crc = rests_[(crc ^ *at) & 0xff] ^ crc >> 8;
    return ~crc;
  }

 private:
  std::array<uint32_t, 256> rests_{};
};

}  // namespace npu_train::detail
