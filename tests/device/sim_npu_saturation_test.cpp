#include "testing.hpp"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

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
  for (const char* soc : {"910A", "310P"}) {
    const auto e = error_of([&] { start_sim_npu({.soc = soc, .overflow_mode = "inf_nan"}); });
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
  CHECK(saturating_backend(big.device()) == &backend);
  CHECK_FALSE(backend.capabilities(d).native_bf16);
  CHECK((big + big).cpu()[0].item<float>() == 600.F);
  CHECK_FALSE(backend.overflow_flag(d));
  CHECK((big * big).cpu()[0].item<float>() == 65504.F);
  CHECK((big * -big).cpu()[0].item<float>() == -65504.F);
  CHECK(backend.overflow_flag(d));
  CHECK((big + big).cpu()[0].item<float>() == 600.F);
  CHECK(backend.overflow_flag(d));  // the flag is sticky
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

TEST_CASE("a cast on the device saturates too, a copy between host and device does not") {
  const auto npu = saturating_npu();
  const Device d{"sim_npu", 0};
  const auto& backend = backend_of(d);
  backend.clear_overflow_flag(d);
  const at::Tensor x = at::full({2}, 1e6F).to(npu);
  CHECK_FALSE(backend.overflow_flag(d));
  CHECK(x.to(at::kHalf).cpu()[0].item<float>() == 65504.F);
  CHECK(backend.overflow_flag(d));
  backend.clear_overflow_flag(d);
  at::Tensor half = at::zeros({2}, at::kHalf).to(npu);
  half.copy_(-x);
  CHECK(half.cpu()[1].item<float>() == -65504.F);
  CHECK(backend.overflow_flag(d));
  backend.clear_overflow_flag(d);
  CHECK(std::isinf(at::full({2}, INFINITY).to(npu).cpu()[0].item<float>()));
  CHECK_FALSE(backend.overflow_flag(d));
}

TEST_CASE("the float status is eight numbers by torch_npu's operators") {
  const auto npu = saturating_npu();
  const auto call = [&](const char* name, const at::Tensor& t) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("npu::") + name).c_str(), "");
    torch::jit::Stack stack{t};
    if (op.schema().arguments().size() > 1) stack.emplace_back(int64_t{0});
    op.callBoxed(&stack);
    return stack.front().toTensor();
  };
  const at::Tensor buffer = call("npu_alloc_float_status", at::zeros({1}).to(npu));
  CHECK((buffer.sizes() == at::IntArrayRef{8}));
  call("npu_clear_float_status", buffer);
  CHECK(call("npu_get_float_status", buffer).is_same(buffer));  // the first generation fills its argument
  CHECK(at::equal(buffer.cpu(), at::zeros({8})));
  (at::full({1}, 3e38F).to(npu) * 10).cpu();
  const at::Tensor status = call("npu_get_float_status", buffer).cpu();
  CHECK(status[0].item<float>() == 1);
  CHECK(at::equal(status.slice(0, 1), at::zeros({7})));
}

TEST_CASE("a chip without bf16 refuses to compute in it, and moves it") {
  const at::Tensor x = at::ones({2}).to(saturating_npu()).to(at::kBFloat16);
  CHECK((x.cpu().scalar_type() == at::kBFloat16));
  CHECK_THROWS_WITH(x + x, doctest::Contains("no units for it"));
}
