#include "testing.hpp"

#include "npu_train/tools/plan/quantities.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("speeds and times have units") {
  CHECK(bytes_per_second_of("x", "25GB/s") == 25e9);
  CHECK(bytes_per_second_of("x", "100 Mbit/s") == 12.5e6);
  CHECK(bytes_per_second_of("x", "1Gbit/s") == 125e6);
  CHECK(bytes_per_second_of("x", "1.5GiB/s") == 1.5 * 0x1p30);
  CHECK(seconds_of("x", "5us") == doctest::Approx(5e-6));
  CHECK(seconds_of("x", "0.35 s") == 0.35);
  CHECK(seconds_of("x", "0ms") == 0);
  CHECK(flops_of("x", "300TFLOPs") == 3e14);
  const auto link = link_of("x", "25GB/s,5us");
  CHECK(link.bytes_per_second == 25e9);
  CHECK(link.latency == doctest::Approx(5e-6));
  CHECK(link_of("x", "1MB/s").latency == 0);
}

TEST_CASE("what is not a quantity is refused by name") {
  for (const char* text : {"", "25", "GB/s", "25GB", "25Gb/s", "25 gb/s", "-1GB/s", "0GB/s", "1e999GB/s", "nanGB/s", "25GB/sx", "25  GB/s"})
    CHECK(has(error_of([&] { bytes_per_second_of("--link", text); }).what(), "--link"));
  for (const char* text : {"", "5", "5 min", "-1us", "us", "5us,"}) CHECK_THROWS_AS(seconds_of("--link", text), Error);
  for (const char* text : {"300", "300TFLOP", "0TFLOPs", "TFLOPs", "300TOPs"}) CHECK_THROWS_AS(flops_of("--peak", text), Error);
  for (const char* text : {"25GB/s,", ",5us", "25GB/s,5us,3us", "5us,25GB/s", "25GB/s;5us"})
    CHECK_THROWS_AS(link_of("--link", text), Error);
  const std::string message = error_of([] { flops_of("--peak", "300TOPs"); }).what();
  CHECK(has(message, "'300TOPs'"));
  CHECK(has(message, "TFLOPs"));
}

TEST_CASE("quantities are shown in the largest unit that they reach") {
  CHECK(rate_text(12.5e6) == "12.5 MB/s");
  CHECK(rate_text(25e9) == "25 GB/s");
  CHECK(seconds_text(0.085) == "85 ms");
  CHECK(seconds_text(2.5) == "2.5 s");
  CHECK(flops_text(1.25e12) == "1.25 TFLOPs");
}
