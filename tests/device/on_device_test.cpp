// Requirements that every device must fulfil through its backend: run on the CPU, on the simulated NPU and, if present, on a GPU.
#include "testing.hpp"

#include <ATen/ATen.h>

#include "device_under_test.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/transfer.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

const bool kNotOnCpu = name_of_device_under_test() != "cpu";

at::TensorOptions on_device() { return at::TensorOptions().device(device_under_test().c10()); }

}  // namespace

TEST_CASE("the device is available by its name, and reports its capabilities") {
  const auto& device = device_under_test();
  const auto& backend = backend_of(device);
  CHECK(backend.is_available());
  CHECK(backend.why_not().empty());
  CHECK(backend.count() > device.index);
  CHECK(device_of(device.c10()) == device);
  const auto can = backend.capabilities(device);
  MESSAGE(device.str(), ": native bf16 ", can.native_bf16, ", native fp16 ", can.native_fp16, ", pinned memory ", can.pinned_memory,
          ", streams ", can.streams, ", saturating overflow ", can.saturating_overflow);
  if (device.kind == "cuda") {
    CHECK(can.native_fp16);
    CHECK(can.pinned_memory);
    CHECK(can.streams);
    CHECK_FALSE(can.saturating_overflow);
    CHECK((resolve_device("auto").kind == "cuda" || resolve_device("auto").kind == "npu"));
  }
}

TEST_CASE("a device that is one too many is refused" * only_if(kNotOnCpu, "a CPU has no number")) {
  const auto& device = device_under_test();
  const auto e = error_of([&] { resolve_device(device.kind + ":" + std::to_string(backend_of(device).count())); });
  CHECK(e.kind() == ErrorKind::Device);
}

TEST_CASE("batches go there and back unchanged, pinned or not") {
  const Batch batch(at::rand({64, 33}), at::randint(10, {64}));
  for (const bool pinned : {false, true}) {
    CAPTURE(pinned);
    for (int i = 0; i < 20; ++i) {
      const auto there = to_device(pinned ? pin(batch) : batch, device_under_test());
      CHECK(there.input().device() == device_under_test().c10());
      CHECK((there.target().scalar_type() == at::kLong));
      CHECK(at::equal((there.input() * 2).cpu(), batch.input() * 2));  // later work waits for the copy automatically
      CHECK(at::equal(there.target().cpu(), batch.target()));
    }
  }
}

TEST_CASE("numbers sent to the host are those of when they were sent, whatever is queued afterwards") {
  auto sum = at::zeros({3}, on_device());
  std::vector<HostCopy> copies;
  for (int i = 0; i < 50; ++i) {
    sum = sum + 1;
    copies.emplace_back(sum);
  }
  for (size_t i = 0; i < copies.size(); ++i) CHECK(at::equal(copies[i].get(), at::full({3}, static_cast<float>(i + 1))));
}

TEST_CASE("its generator: seeded, saved and restored") {
  const auto draw = [] { return at::rand({1000}, on_device()).cpu(); };
  seed_everything(7);
  const auto a = draw();
  seed_everything(7);
  CHECK(at::equal(draw(), a));
  const auto state = rng_state();
  CHECK(state.tensors.count(device_under_test().str()) == 1);
  const auto b = draw();
  CHECK_FALSE(at::equal(a, b));
  seed_everything(8);
  CHECK_FALSE(at::equal(draw(), a));
  set_rng_state(state);
  CHECK(at::equal(draw(), b));
}

TEST_CASE("memory: what is allocated, its peak, and a new peak" * only_if(kNotOnCpu, "the resident set has a test of its own")) {
  const auto& device = device_under_test();
  const auto& backend = backend_of(device);
  constexpr int64_t kBytes = int64_t{64} << 20;
  const auto before = backend.memory(device);
  {
    const auto big = at::ones({kBytes / 4}, on_device());
    backend.synchronize(device);
    const auto allocated = backend.memory(device).allocated - before.allocated;
    CHECK(allocated >= kBytes);
    CHECK(allocated <= kBytes + 512);  // torch_npu adds 32 bytes, and rounds up to 512
  }
  const auto after = backend.memory(device);
  CHECK(after.allocated == before.allocated);
  CHECK(after.peak >= before.allocated + kBytes);
  CHECK(after.total > kBytes);
  backend.reset_peak(device);
  CHECK(backend.memory(device).peak == after.allocated);
}
