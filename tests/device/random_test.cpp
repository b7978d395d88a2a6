#include "testing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "npu_train/device/random.hpp"

using namespace npu_train;
using npu_train::testing::error_of;

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
