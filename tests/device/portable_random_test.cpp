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

TEST_CASE("the numbers of a micro-batch depend on its position alone, and the count continues after it") {
  const auto draw = [] { return PortableRandom::uniform({8}, at::kCPU); };
  const auto drawn = [&](uint64_t seed, const char* pass, int64_t attempt, int64_t number, int before) {
    const PortableRandom random(seed);
    for (int i = 0; i < before; ++i) draw();
    const auto position = PortableRandom::position();
    at::Tensor first, second;
    {
      const PortableRandom::MicroBatch place(pass, attempt, number);
      first = draw(), second = draw();
      CHECK_FALSE(at::equal(first, second));
    }
    CHECK((PortableRandom::position() == position));
    return second;
  };
  const auto expected = drawn(1, "training", 2, 3, 0);
  CHECK(at::equal(drawn(1, "training", 2, 3, 5), expected));
  CHECK_FALSE(at::equal(drawn(2, "training", 2, 3, 0), expected));
  CHECK_FALSE(at::equal(drawn(1, "validation", 2, 3, 0), expected));
  CHECK_FALSE(at::equal(drawn(1, "training", 3, 2, 0), expected));
  CHECK_FALSE(at::equal(drawn(1, "training", 2, 4, 0), expected));
  const PortableRandom::MicroBatch nothing_on("training", 0, 0);
  CHECK_FALSE(PortableRandom::is_on());
}

TEST_CASE("a recomputation after its micro-batch draws the same numbers again") {
  const PortableRandom random(7);
  RandomState state;
  at::Tensor first;
  {
    const PortableRandom::MicroBatch place("training", 1, 1);
    PortableRandom::uniform({2}, at::kCPU);
    state = RandomState({c10::Device(c10::kCPU)});
    first = PortableRandom::uniform({4}, at::kCPU);
  }
  const PortableRandom::MicroBatch next("training", 1, 2);
  const auto position = PortableRandom::position();
  {
    const RandomState::Scope again(state);
    CHECK(at::equal(PortableRandom::uniform({4}, at::kCPU), first));
  }
  CHECK((PortableRandom::position() == position));
  CHECK_FALSE(at::equal(PortableRandom::uniform({4}, at::kCPU), first));
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
  set_rng_state(state);  // contains nothing to set here
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
