// Replaces deflate.cpp in a library without image support, which needs no zlib.
#include "io/tensors/deflate.hpp"

#include "io/crc_table.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {

uint32_t zip_crc32(const void* data, uint64_t bytes) {
  static constexpr CrcTable table(0xedb88320u);
  return table.of(data, bytes);
}

std::string inflate_pieces(const std::function<std::string()>& /*next*/, void* /*out*/, uint64_t /*size*/) {
  throw Error(ErrorKind::Device, "zip", "an npu_train that was built with NPU_TRAIN_IMAGES=OFF cannot read compressed entries",
              "build it with NPU_TRAIN_IMAGES=ON, or save the file without compression");
}

}  // namespace npu_train::detail
