#include "testing.hpp"

#include <ATen/ATen.h>

#include <limits>

#include "npu_train/precision/finite_check.hpp"

using namespace npu_train;
using npu_train::testing::kInf;
using npu_train::testing::kNaN;

namespace {}  // namespace

TEST_CASE("finite gradients are multiplied, nothing is found") {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto a = at::randn({7, 5}).to(type), b = at::randn({1}).to(type);
    std::vector<at::Tensor> grads = {a.clone(), b.clone()};
    const auto found = unscale_and_check(grads, 0.25);
    CHECK(found.item<float>() == 0);
    CHECK((found.scalar_type() == at::kFloat));
    CHECK(found.dim() == 0);
    CHECK(at::equal(grads[0], a * 0.25));
    CHECK(at::equal(grads[1], b * 0.25));
  }
}

TEST_CASE("one element anywhere is enough") {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const float bad : {kInf, -kInf, kNaN})
      for (const int64_t size : {1, 3, 16, 1000, 100003})
        for (const int64_t at_index : {int64_t{0}, size / 2, size - 1}) {
          CAPTURE(type);
          CAPTURE(bad);
          CAPTURE(size);
          CAPTURE(at_index);
          auto t = at::ones({size}, type);
          t[at_index] = bad;
          CHECK(unscale_and_check({at::ones({4}, type), t, at::ones({2}, type)}, 1.0).item<float>() == 1);
          t[at_index] = 1;
          CHECK(unscale_and_check({at::ones({4}, type), t, at::ones({2}, type)}, 1.0).item<float>() == 0);
        }
}

TEST_CASE("gradients that are not contiguous") {
  for (const bool poisoned : {false, true}) {
    auto base = at::ones({6, 8});
    auto transposed = base.t();
    auto with_gaps = at::ones({6, 8}).slice(1, 0, 8, 2);
    auto last = at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
    if (poisoned) with_gaps[5][3] = kNaN;
    const auto found = unscale_and_check({transposed, with_gaps, last}, 0.5);
    CHECK(found.item<float>() == (poisoned ? 1 : 0));
    CHECK(at::equal(base, at::full({6, 8}, 0.5)));
    CHECK(last.sum().item<float>() == 60);
    CHECK(with_gaps[0][0].item<float>() == 0.5f);
  }
}

TEST_CASE("the gaps of a view are not looked at, nor changed") {
  auto whole = at::ones({4, 4});
  whole[1][1] = kInf;
  CHECK(unscale_and_check({whole.slice(1, 0, 4, 2)}, 0.5).item<float>() == 0);
  CHECK(whole[0][1].item<float>() == 1);
}

TEST_CASE("mixed dtypes are checked together") {
  for (int bad = -1; bad < 3; ++bad) {
    std::vector<at::Tensor> grads = {at::ones({3}), at::ones({3}, at::kHalf), at::ones({3}, at::kBFloat16)};
    if (bad >= 0) grads[static_cast<size_t>(bad)][2] = kInf;
    CHECK(unscale_and_check(grads, 0.5).item<float>() == (bad >= 0 ? 1 : 0));
    for (int i = 0; i < 3; ++i) CHECK(grads[static_cast<size_t>(i)][0].item<float>() == 0.5f);
  }
}

TEST_CASE("a factor that overflows is not taken for a bad gradient, a bad one times zero is found") {
  CHECK(unscale_and_check({at::full({2}, kInf)}, 0.0).item<float>() == 1);
  CHECK(unscale_and_check({at::full({2}, 65504.f).to(at::kHalf)}, 1.0).item<float>() == 0);
}

TEST_CASE("over a ParameterSet: parameters without a gradient are passed over") {
  ParameterSet set;
  for (const char* name : {"a", "b", "c"}) set.add({.name = name, .value = at::ones({4}).set_requires_grad(true)});
  CHECK(unscale_and_check(set, 0.5).item<float>() == 0);
  set[1].value.mutable_grad() = at::full({4}, 8.0);
  CHECK(unscale_and_check(set, 0.5).item<float>() == 0);
  CHECK(at::equal(set[1].value.grad(), at::full({4}, 4.0)));
  CHECK_FALSE(set[0].value.grad().defined());
  set[2].value.mutable_grad() = at::full({4}, kNaN);
  CHECK(unscale_and_check(set, 0.5).item<float>() == 1);
  CHECK(unscale_and_check(ParameterSet{}, 1.0).item<float>() == 0);
}

TEST_CASE("no other value than the gradients changes: the check leaves no graph") {
  auto g = at::ones({3}).set_requires_grad(true);
  ParameterSet set;
  set.add({.name = "a", .value = g});
  g.mutable_grad() = at::ones({3});
  const auto found = unscale_and_check(set, 2.0);
  CHECK_FALSE(found.requires_grad());
  CHECK_FALSE(g.grad().requires_grad());
}
