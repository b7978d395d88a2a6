#include "testing.hpp"

#include "npu_train/io/checksum.hpp"

#include "npu_train/core/hash.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::TempDir;

TEST_CASE("a file's checksum is the hash of its content, and one flipped bit is seen") {
  const TempDir dir;
  std::string text(2'500'000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761u >> 11);
  const auto path = dir / "a";
  const auto written = write_file_atomic(path, text);
  CHECK(written.checksum == hash64(text));
  CHECK(file_checksum(path) == hash64(text));
  verify_file(path, written.bytes, written.checksum);

  text[1'234'567] = static_cast<char>(text[1'234'567] ^ 4);
  write_file_atomic(path, text);
  const auto flipped = error_of([&] { verify_file(path, written.bytes, written.checksum); });
  CHECK(flipped.kind() == ErrorKind::Checkpoint);
  CHECK(std::string(flipped.what()).find(hex64(written.checksum)) != std::string::npos);
  write_file_atomic(path, text.substr(1));
  CHECK(std::string(error_of([&] { verify_file(path, written.bytes, written.checksum); }).what()).find("2,499,999 bytes") !=
        std::string::npos);
  CHECK(error_of([&] { file_checksum(dir / "none", ErrorKind::Data); }).kind() == ErrorKind::Data);
  write_file_atomic(path, "");
  CHECK(file_checksum(path) == hash64(""));
}
