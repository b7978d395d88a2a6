#include "testing.hpp"

#include <ATen/ATen.h>

#include <thread>

#include "npu_train/device/portable_random.hpp"
#include "npu_train/device/random.hpp"
#include "npu_train/device/threads.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

TEST_CASE("draws depend on the seed and their order alone, not on threads") {
  const auto draw = [](uint64_t seed, int threads) {
    const ThreadCount count(threads);
    const PortableRandom random(seed);
    const at::Tensor first = PortableRandom::uniform({100, 1000}, at::kCPU);
    return std::pair(first, PortableRandom::uniform({7}, at::kCPU));
  };
  const auto [a, b] = draw(1, 1);
  const auto [c, d] = draw(1, 2);
  CHECK(at::equal(a, c));
  CHECK(at::equal(b, d));
  CHECK_FALSE(at::equal(draw(2, 1).second, b));
  CHECK_FALSE(at::equal(a.flatten().narrow(0, 0, 7), b));
  CHECK(a.min().item<float>() >= 0);
  CHECK(a.max().item<float>() < 1);
  CHECK(std::abs(a.mean().item<double>() - 0.5) < 0.004);  // four standard errors
  CHECK(std::abs(a.var().item<double>() - 1.0 / 12) < 0.002);
}

TEST_CASE("it is of its thread, and refuses where it is not on") {
  const PortableRandom random(1);
  std::thread([] {
    CHECK_FALSE(PortableRandom::is_on());
    CHECK((error_of([] { PortableRandom::uniform({1}, at::kCPU); }).kind() == ErrorKind::Usage));
  }).join();
  CHECK(PortableRandom::is_on());
}

TEST_CASE("its place travels with the states of the generators") {
  State state;
  at::Tensor expected;
  {
    const PortableRandom random(5);
    PortableRandom::uniform({3}, at::kCPU);
    state = rng_state();
    expected = PortableRandom::uniform({3}, at::kCPU);
  }
  CHECK(state.tensors.count("portable") == 1);
  CHECK(rng_state().tensors.count("portable") == 0);
  set_rng_state(state);  // nothing to set here
  CHECK_FALSE(PortableRandom::is_on());
  const PortableRandom random(9);
  set_rng_state(state);
  CHECK(at::equal(PortableRandom::uniform({3}, at::kCPU), expected));
  state.tensors["portable"] = at::zeros({3});
  CHECK((error_of([&] { set_rng_state(state); }).kind() == ErrorKind::Checkpoint));
}

TEST_CASE("a RandomState brings generators and the portable place back for a scope") {
  const PortableRandom random(7);
  const RandomState state({c10::Device(c10::kCPU)});
  const at::Tensor a = at::rand({4}), p = PortableRandom::uniform({4}, at::kCPU);
  const auto place = PortableRandom::position();
  at::Tensor b, q;
  {
    const RandomState::Scope again(state);
    b = at::rand({4}), q = PortableRandom::uniform({4}, at::kCPU);
  }
  CHECK(at::equal(a, b));
  CHECK(at::equal(p, q));
  CHECK((PortableRandom::position() == place));
}

TEST_CASE("a RandomState brings generators and the portable place back for good") {
  const PortableRandom random(7);
  const RandomState state({c10::Device(c10::kCPU)});
  const at::Tensor a = at::rand({4}), p = PortableRandom::uniform({4}, at::kCPU);
  state.restore();
  CHECK(at::equal(at::rand({4}), a));
  CHECK(at::equal(PortableRandom::uniform({4}, at::kCPU), p));
}
