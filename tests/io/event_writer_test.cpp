#include "testing.hpp"

#include "npu_train/io/event_writer.hpp"

#include <cmath>
#include <fstream>

#include "npu_train/io/file.hpp"

using namespace npu_train;

namespace {
std::string slurp(const std::string& path) { return read_file(path, 1 << 20); }
uint32_t u32(const std::string& s, size_t at) {
  uint32_t v = 0;
  for (int i = 3; i >= 0; --i) v = v << 8 | static_cast<uint8_t>(s[at + static_cast<size_t>(i)]);
  return v;
}
uint32_t masked(std::string_view s) {
  const auto c = crc32c(s);
  return (c >> 15 | c << 17) + 0xa282ead8u;
}
}  // namespace

TEST_CASE("crc32c gives the check value of RFC 3720") {
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
}

TEST_CASE("every record has valid frame checksums and the scalars are inside") {
  testing::TempDir dir;
  std::string path;
  {
    EventWriter writer(dir.path().string());
    writer.add_scalars({{"train/loss", 0.5}, {"val/acc1", 91.25}}, 300);
    path = writer.path();
  }
  const auto bytes = slurp(path);
  size_t at = 0;
  int records = 0;
  std::string last;
  while (at < bytes.size()) {
    const auto length = u32(bytes, at);
    REQUIRE(at + 12 + length + 4 <= bytes.size());
    CHECK(u32(bytes, at + 8) == masked(std::string_view(bytes).substr(at, 8)));
    last = bytes.substr(at + 12, length);
    CHECK(u32(bytes, at + 12 + length) == masked(last));
    at += 16 + length;
    ++records;
  }
  CHECK(records == 2);
  CHECK(last.find("train/loss") != std::string::npos);
  CHECK(last.find(std::string("\x15\x00\x00\x00\x3f", 5)) != std::string::npos);  // field 2, fixed32, 0.5f
  CHECK(last.find(std::string("\x10\xac\x02", 3)) != std::string::npos);          // field 2 of the event: step 300
}

TEST_CASE("the start of a resumed session has its step, and its file comes after all others of the folder") {
  testing::TempDir dir;
  const auto earlier = dir.path() / "events.out.tfevents.9000000000.z.1";  // like a file of a machine whose clock is ahead
  std::ofstream(earlier) << "";
  std::string path;
  {
    EventWriter writer(dir.path().string());
    writer.start_session(300);
    path = writer.path();
  }
  CHECK(path > earlier.string());
  CHECK(path.find("events.out.tfevents.9000000001.") != std::string::npos);
  CHECK(slurp(path).find(std::string("\x10\xac\x02\x3a\x02\x08\x01", 7)) != std::string::npos);  // step 300, session_log {status: START}
}

// tests/apps/logger_test.py names a folder for these events, and reads them with TensorBoard's own reader.
TEST_CASE("events of each kind") {
  testing::TempDir own;
  const char* const given = std::getenv("EVENT_SAMPLES");
  EventWriter writer(given != nullptr ? given : own.path().string());
  writer.add_hyperparameters({{"optimizer.lr", 0.1}, {"average.enabled", true}, {"model.name", std::string("resnet18")}});
  writer.add_scalars({{"loss", 0.5}, {"bad", testing::kNaN}}, 300);
  writer.add_text("notes/first", "# A text\n\nwith \u00e4", 300);
  // Two pixels, red and blue.
  constexpr std::string_view kPng =
      "89504e470d0a1a0a0000000d49484452000000020000000108020000007b40e8dd0000000d49444154789c63f8cf0004ff01070001ffe2239e590000000049454e44"
      "ae426082";
  std::string png;
  for (size_t i = 0; i < kPng.size(); i += 2) png += static_cast<char>(std::stoi(std::string(kPng.substr(i, 2)), nullptr, 16));
  writer.add_image("images/pixels", png, 1, 2, 3, 301);
  writer.add_histogram("weights", {-1, 3, 4, 4, 14}, {-0.5, 0.5, 2.5, 3.5}, {1, 0, 2, 1}, 302);
  CHECK(std::filesystem::file_size(writer.path()) > 500);
}

TEST_CASE("a folder that cannot be made is an error") {
  const auto e = testing::error_of([] { EventWriter("/proc/none/here"); });
  CHECK(e.kind() == ErrorKind::Checkpoint);
}
