#include "testing.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <torch/utils.h>

#include <cmath>

#include "npu_train/nn/init.hpp"

using namespace npu_train;

TEST_CASE("fans") {
  CHECK(init::fans(at::empty({5, 3})).in == 3);
  CHECK(init::fans(at::empty({5, 3})).out == 5);
  CHECK(init::fans(at::empty({64, 16, 3, 3})).in == 144);
  CHECK(init::fans(at::empty({64, 16, 3, 3})).out == 576);
  CHECK(testing::error_of([] { init::fans(at::empty({3})); }).kind() == ErrorKind::Usage);
}

TEST_CASE("distributions") {
  torch::manual_seed(0);
  const at::Tensor w = at::empty({256, 64, 3, 3});
  const auto spread = [&] { return w.std().item<double>(); };
  const auto largest = [&] { return w.abs().max().item<double>(); };
  init::kaiming_normal_fan_out_(w);
  CHECK(spread() == doctest::Approx(std::sqrt(2.0 / (256 * 9))).epsilon(0.02));
  CHECK(std::abs(w.mean().item<double>()) < 0.001);
  init::kaiming_uniform_fan_in_(w);
  CHECK(largest() <= std::sqrt(1.0 / (64 * 9)));
  CHECK(spread() == doctest::Approx(std::sqrt(1.0 / (64 * 9) / 3)).epsilon(0.02));
  init::xavier_uniform_(w);
  CHECK(largest() <= std::sqrt(6.0 / (320 * 9)) * (1 + 1e-6));
  CHECK(spread() == doctest::Approx(std::sqrt(2.0 / (320 * 9))).epsilon(0.02));
  init::normal_(w, 0.02);
  CHECK(spread() == doctest::Approx(0.02).epsilon(0.02));
  init::uniform_(w, 0.5);
  CHECK(largest() <= 0.5);
  init::zeros_(w);
  CHECK(largest() == 0);
  init::ones_(w);
  CHECK(w.min().item<float>() == 1);
}

TEST_CASE("truncated normal stays inside and keeps the shape of a normal") {
  torch::manual_seed(0);
  const at::Tensor w = at::empty({200000});
  init::trunc_normal_(w, 1.0);
  CHECK(w.abs().max().item<double>() <= 2.0);
  // A normal distribution, cut at two standard deviations, has 0.8796 of its spread.
  CHECK(w.std().item<double>() == doctest::Approx(0.8796).epsilon(0.01));
  init::trunc_normal_(w, 0.02);
  CHECK(w.std().item<double>() == doctest::Approx(0.02).epsilon(0.01));
  CHECK(w.isfinite().all().item<bool>());
  CHECK(testing::error_of([&] { init::trunc_normal_(w, 0.0); }).kind() == ErrorKind::Usage);
}

TEST_CASE("the same seed gives the same numbers, and autograd does not see it") {
  const at::Tensor a = at::empty({30, 30}).requires_grad_(true), b = at::empty({30, 30});
  torch::manual_seed(7);
  init::xavier_uniform_(a);
  torch::manual_seed(7);
  init::xavier_uniform_(b);
  CHECK(at::equal(a, b));
  CHECK(a.is_leaf());
  CHECK(a._version() > 0);
}

TEST_CASE("of many numbers none is infinite") {
  torch::manual_seed(1);
  const at::Tensor w = at::empty({1 << 26});
  init::normal_(w, 1.0);
  CHECK(w.abs().max().item<float>() < 6.0f);
}
