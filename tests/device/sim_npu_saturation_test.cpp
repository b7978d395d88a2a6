#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/device/backend.hpp"
#include "npu_train/device/sim_npu.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

namespace {

at::Device saturating_npu() {
  start_sim_npu({.soc = "910A", .devices = 2});
  return Device{"sim_npu", 0}.c10();
}

}  // namespace

TEST_CASE("impossible pairs of chip and mode are refused before anything is loaded") {
  for (const auto& [soc, mode] : {std::pair{"910A", "inf_nan"}, {"310P", "inf_nan"}}) {
    const auto e = error_of([&] { start_sim_npu({.soc = soc, .overflow_mode = mode}); });
    CHECK((e.kind() == ErrorKind::Usage));
    CHECK(npu_train::testing::has(e.what(), "always saturates"));
  }
  CHECK((error_of([] { start_sim_npu({.soc = "910C"}); }).kind() == ErrorKind::Usage));
  CHECK((error_of([] { start_sim_npu({.hbm = "much"}); }).kind() == ErrorKind::Usage));
  CHECK_FALSE(backend_of({"sim_npu", 0}).is_available());
}

TEST_CASE("an overflow gives the largest number, NaN gives 0, and the device's flag stays set until it is cleared") {
  const at::Tensor big = at::full({3}, 300.F).to(at::kHalf).to(saturating_npu());
  const Device d{"sim_npu", 0};
  const auto& backend = backend_of(d);
  backend.clear_overflow_flag(d);
  CHECK(backend.capabilities(d).saturating_overflow);
  CHECK_FALSE(backend.capabilities(d).native_bf16);
  CHECK((big + big).cpu()[0].item<float>() == 600.F);
  CHECK_FALSE(backend.overflow_flag(d));
  CHECK((big * big).cpu()[0].item<float>() == 65504.F);
  CHECK((big * -big).cpu()[0].item<float>() == -65504.F);
  CHECK(backend.overflow_flag(d));
  CHECK((big + big).cpu()[0].item<float>() == 600.F);
  CHECK(backend.overflow_flag(d));  // sticky
  CHECK_FALSE(backend.overflow_flag({"sim_npu", 1}));
  backend.clear_overflow_flag(d);
  CHECK_FALSE(backend.overflow_flag(d));
  CHECK(at::sqrt(-big).cpu()[0].item<float>() == 0.F);
  CHECK(backend.overflow_flag(d));
}

TEST_CASE("products overflow where their result is rounded to fp16") {
  const at::Tensor a = at::full({1, 64}, 40.F).to(saturating_npu()).to(at::kHalf);
  const Device d{"sim_npu", 0};
  backend_of(d).clear_overflow_flag(d);
  CHECK(at::mm(a, a.t()).item<float>() == 65504.F);
  CHECK(backend_of(d).overflow_flag(d));
}
