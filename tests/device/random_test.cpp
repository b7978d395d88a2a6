#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <thread>

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

TEST_CASE("a PortableRandom is of its thread, and refuses where it is not on") {
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

TEST_CASE("the place of a PortableRandom travels with the states of the generators") {
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
  set_rng_state(state);  // ignores the place, because no PortableRandom is on
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

TEST_CASE("the same seed gives the same numbers, another one others") {
  seed_everything(7);
  const auto a = at::randn({100});
  seed_everything(7);
  CHECK(at::equal(a, at::randn({100})));
  seed_everything(8);
  CHECK_FALSE(at::equal(a, at::randn({100})));
}

TEST_CASE("a state continues in the middle of a stream, with cached normal samples") {
  seed_everything(1);
  at::randn({3});
  const auto state = rng_state();
  const auto a = at::randn({17});
  at::rand({5});
  set_rng_state(state);
  CHECK(at::equal(a, at::randn({17})));
}

TEST_CASE("a saved state is a copy") {
  seed_everything(1);
  const auto state = rng_state();
  const auto first = at::rand({4});
  seed_everything(99);
  set_rng_state(state);
  CHECK(at::equal(first, at::rand({4})));
}

TEST_CASE("entries of devices that are not available are ignored") {
  seed_everything(3);
  auto state = rng_state();
  state.tensors["npu:0"] = at::zeros({16}, at::kByte);
  state.tensors["cuda:99"] = at::zeros({16}, at::kByte);
  const auto a = at::rand({4});
  set_rng_state(state);
  CHECK(at::equal(a, at::rand({4})));
}

TEST_CASE("a missing or damaged state is refused and changes nothing") {
  seed_everything(3);
  const auto state = rng_state();
  const auto expected = at::rand({4});
  set_rng_state(state);
  auto bad = state;
  bad.tensors["cpu"] = at::zeros({10}, at::kByte);
  CHECK(error_of([&] { set_rng_state(bad); }).kind() == ErrorKind::Checkpoint);
  bad.tensors["cpu"] = state.tensors.at("cpu").to(at::kFloat);
  CHECK(error_of([&] { set_rng_state(bad); }).kind() == ErrorKind::Checkpoint);
  bad.tensors["cpu"] = at::Tensor();
  CHECK(error_of([&] { set_rng_state(bad); }).kind() == ErrorKind::Checkpoint);
  bad.tensors["cpu"] = at::zeros_like(state.tensors.at("cpu")).fill_(255);
  CHECK(error_of([&] { set_rng_state(bad); }).kind() == ErrorKind::Checkpoint);
  CHECK(error_of([&] { set_rng_state({}); }).kind() == ErrorKind::Checkpoint);
  CHECK(at::equal(expected, at::rand({4})));
}
