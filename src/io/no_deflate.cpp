// In the place of deflate.cpp in a library without images, which needs no zlib.
#include <array>

#include "io/deflate.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {

uint32_t zip_crc32(const void* data, uint64_t bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      out[byte] = byte;
      for (int bit = 0; bit < 8; ++bit) out[byte] = out[byte] >> 1 ^ ((out[byte] & 1) != 0 ? 0xedb88320u : 0);
    }
    return out;
  }();
  uint32_t crc = 0xffffffffu;
  const auto* at = static_cast<const uint8_t*>(data);
  for (const auto* const end = at + bytes; at != end; ++at) crc = table[(crc ^ *at) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string inflate_pieces(const std::function<std::string()>& /*next*/, void* /*out*/, uint64_t /*size*/) {
  throw Error(ErrorKind::Device, "zip", "an npu_train that was built with NPU_TRAIN_IMAGES=OFF cannot read compressed entries",
              "build it with NPU_TRAIN_IMAGES=ON, or save the file without compression");
}

}  // namespace npu_train::detail
