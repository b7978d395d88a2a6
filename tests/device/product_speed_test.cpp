#include "testing.hpp"

#include "npu_train/device/backend.hpp"

#include "npu_train/device/product_speed.hpp"

using namespace npu_train;
using namespace npu_train::testing;

TEST_CASE("a machine multiplies matrices at some speed") {
  const auto flops = gemm_flops({"cpu", 0}, c10::ScalarType::Float, 256, 2);
  CHECK(flops > 1e6);
  CHECK(flops < 1e16);
}

TEST_CASE("invalid sizes of products are refused, and a missing device is reported") {
  CHECK(error_of([] { gemm_flops({"cpu", 0}, c10::ScalarType::Float, 0); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { gemm_flops({"cuda", 0}); }).kind() == ErrorKind::Device);
}

TEST_CASE("a CPU has units for bf16 where its instructions multiply it, and none for others") {
  const Device cpu{"cpu", 0};
  CHECK(has_units_for(cpu, c10::ScalarType::BFloat16) == backend_of(cpu).capabilities(cpu).native_bf16);
  CHECK_FALSE(has_units_for(cpu, c10::ScalarType::Half));
  CHECK_FALSE(has_units_for(cpu, c10::ScalarType::Float));
}
