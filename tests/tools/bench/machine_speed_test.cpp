#include "testing.hpp"

#include "npu_train/tools/bench/machine_speed.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a machine copies at some speed") {
  const auto bytes = copy_bandwidth({"cpu", 0}, 1 << 20, 2);
  CHECK(bytes > 1e6);
  CHECK(bytes < 1e14);
}

TEST_CASE("invalid sizes are refused, and a missing device is reported") {
  CHECK(error_of([] { copy_bandwidth({"cpu", 0}, -1); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { copy_bandwidth({"cuda", 0}); }).kind() == ErrorKind::Device);
}
