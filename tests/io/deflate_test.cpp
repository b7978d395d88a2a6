#include "testing.hpp"

#include "io/tensors/deflate.hpp"

#include <numeric>
#include <vector>

#include "npu_train/core/error.hpp"

// Includes the implementation of a library without images, in addition to zlib's.
#define zip_crc32 zip_crc32_without_zlib
#define inflate_pieces inflate_pieces_without_zlib
#include "io/tensors/no_deflate.cpp"
#undef zip_crc32
#undef inflate_pieces

using npu_train::ErrorKind;
using npu_train::testing::error_of;

TEST_CASE("both forms of the checksum of zip archives are CRC-32") {
  CHECK(npu_train::detail::zip_crc32("123456789", 9) == 0xcbf43926u);  // the check value of the CRC catalogue
  CHECK(npu_train::detail::zip_crc32_without_zlib("123456789", 9) == 0xcbf43926u);
  std::vector<uint8_t> bytes(100'003);
  std::iota(bytes.begin(), bytes.end(), uint8_t{7});
  for (const size_t size : {size_t{0}, size_t{1}, size_t{255}, bytes.size()})
    CHECK(npu_train::detail::zip_crc32_without_zlib(bytes.data(), size) == npu_train::detail::zip_crc32(bytes.data(), size));
}

TEST_CASE("without zlib a compressed entry is refused by name") {
  const auto e = error_of([] { npu_train::detail::inflate_pieces_without_zlib([] { return std::string(); }, nullptr, 0); });
  CHECK(e.kind() == ErrorKind::Device);
  CHECK(std::string(e.what()).find("NPU_TRAIN_IMAGES=ON") != std::string::npos);
}
