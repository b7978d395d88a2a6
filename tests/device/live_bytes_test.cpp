#include "testing.hpp"

#include <ATen/ATen.h>

#include <thread>

#include "npu_train/device/host_arena.hpp"
#include "npu_train/device/live_bytes.hpp"

using namespace npu_train;

namespace {
constexpr int64_t kMiB = 1 << 20;
at::Tensor of_bytes(int64_t n) { return at::empty({n}, at::kByte); }
}  // namespace

TEST_CASE("tensors that live, and the most at once") {
  const at::Tensor before = of_bytes(kMiB);
  const LiveBytes live;
  at::Tensor a = of_bytes(2 * kMiB);
  CHECK(live.now() == 2 * kMiB);
  {
    const at::Tensor b = of_bytes(3 * kMiB), view = b.view({3, kMiB});
    CHECK(live.now() == 5 * kMiB);
  }
  CHECK(live.now() == 2 * kMiB);
  a.reset();
  CHECK(live.now() == 0);
  CHECK(live.peak() == 5 * kMiB);
}

TEST_CASE("earlier allocations and their release do not count, nor do other threads") {
  at::Tensor before = of_bytes(kMiB);
  const LiveBytes live;
  before.reset();
  std::thread([] { const at::Tensor t = of_bytes(4 * kMiB); }).join();
  CHECK(live.now() == 0);
  CHECK(live.peak() == 0);
}

TEST_CASE("a block of an earlier scope does not count in a later one") {
  at::Tensor of_first;
  {
    const LiveBytes first;
    of_first = of_bytes(kMiB);
  }
  const LiveBytes second;
  of_first.reset();
  CHECK(second.now() == 0);
}

TEST_CASE("blocks of the arena count too, and the backward pass") {
  const HostArena arena;
  at::Tensor x = at::ones({kMiB / 4}).requires_grad_(true);
  const LiveBytes live;
  const at::Tensor y = x.exp();  // exp() saves it for its own backward
  CHECK(live.now() == kMiB);
  y.sum().backward();
  CHECK(live.now() >= 2 * kMiB);  // the gradient, too
  CHECK(live.now() < 2 * kMiB + 4096);
  CHECK(live.peak() >= live.now());
}

TEST_CASE("the peak of a piece of work, beyond earlier allocations") {
  const at::Tensor before = of_bytes(8 * kMiB);
  at::Tensor kept;
  const auto device = Device::parse("cpu");
  CHECK(peak_bytes_of(device, [&] {
          const at::Tensor a = of_bytes(2 * kMiB);
          kept = of_bytes(kMiB);
        }) == 3 * kMiB);
  CHECK(peak_bytes_of(device, [] {}) == 0);
}
