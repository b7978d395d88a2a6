#include "testing.hpp"

#include <torch/nn/utils/clip_grad.h>

#include "helpers.hpp"
#include "npu_train/optim/clip.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

ParameterSet with_gradients(double scale) {
  auto set = example_parameters();
  random_gradients(set, 1);
  for (const auto& p : set) p.value.mutable_grad().mul_(scale);
  return set;
}

}  // namespace

TEST_CASE("as torch.nn.utils.clip_grad_norm_, above and below the limit") {
  for (const double scale : {0.001, 1.0, 100.0})
    for (const double norm_type : {2.0, kInf}) {
      CAPTURE(scale);
      CAPTURE(norm_type);
      const auto a = with_gradients(scale), b = with_gradients(scale);
      const auto norm = clip_grad_norm_(a, 1.0, norm_type);
      const double expected = torch::nn::utils::clip_grad_norm_(b.values(), 1.0, norm_type);
      CHECK(norm.item<float>() == doctest::Approx(expected).epsilon(1e-6));
      for (size_t i = 0; i < a.size(); ++i) CHECK(at::allclose(a[i].value.grad(), b[i].value.grad(), 1e-6, 0));
    }
}

TEST_CASE("the result has the requested norm, and directions stay") {
  const auto set = with_gradients(10);
  const auto before = flat(set[0].value.grad());
  const double norm = clip_grad_norm_(set, 0.5).item<double>();
  CHECK(norm > 0.5);
  double square = 0;
  for (const auto& p : set) square += flat(p.value.grad()).square().sum();
  CHECK(std::sqrt(square) == doctest::Approx(0.5).epsilon(1e-4));
  CHECK((flat(set[0].value.grad()) - before * 0.5 / norm).abs().maxCoeff() < 1e-6);
}

TEST_CASE("below the limit gradients keep every bit") {
  const auto set = with_gradients(0.001);
  std::vector<at::Tensor> before;
  for (const auto& g : set.grads()) before.push_back(g.clone());
  clip_grad_norm_(set, 10);
  for (size_t i = 0; i < before.size(); ++i) CHECK(at::equal(set[i].value.grad(), before[i]));
}

TEST_CASE("parameters given directly, some without a gradient") {
  auto a = at::ones({3}).set_requires_grad(true), b = at::ones({3}).set_requires_grad(true);
  CHECK(clip_grad_norm_({a, b}, 1).item<float>() == 0);
  CHECK(clip_grad_norm_(ParameterSet{}, 1).item<float>() == 0);
  b.mutable_grad() = at::full({3}, 2.0);
  CHECK(clip_grad_norm_({a, b}, 1, kInf).item<float>() == 2);
  CHECK(at::allclose(b.grad(), at::ones({3})));
}

TEST_CASE("norms of low-precision gradients are computed in fp32, mixed dtypes together") {
  auto a = at::ones({100000}, at::kHalf).set_requires_grad(true);
  a.mutable_grad() = at::full({100000}, 4.0, at::kHalf);  // the sum of squares, 1.6e6, exceeds fp16, but the norm fits
  auto b = at::ones({4}).set_requires_grad(true);
  b.mutable_grad() = at::full({4}, 3.0);
  const double expected = std::sqrt(100000 * 16.0 + 36);
  CHECK(clip_grad_norm_({a, b}, 1).item<double>() == doctest::Approx(expected).epsilon(1e-5));
  CHECK(a.grad()[0].item<float>() == doctest::Approx(4 / expected).epsilon(1e-3));
  CHECK(b.grad()[0].item<float>() == doctest::Approx(3 / expected).epsilon(1e-4));
}

TEST_CASE("the norm of fp64 gradients is fp64, mixed dtypes too, and squares do not overflow") {
  for (const double norm_type : {2.0, kInf}) {
    auto a = at::ones({3}, at::kDouble).set_requires_grad(true), b = at::ones({2}).set_requires_grad(true);
    a.mutable_grad() = at::tensor({1.0 / 3, 2.0 / 3, -1.0 / 7}, at::kDouble);
    b.mutable_grad() = at::tensor({0.375f, -0.5f});  // with a norm that is exact in fp32
    const double expected = norm_type == 2 ? std::sqrt(1.0 / 9 + 4.0 / 9 + 1.0 / 49 + 0.390625) : 2.0 / 3;
    const auto norm = clip_grad_norm_({b, a}, 0.1, norm_type);
    CHECK((norm.scalar_type() == at::kDouble));
    CHECK(std::abs(norm.item<double>() - expected) < 1e-15);
    CHECK(std::abs(a.grad()[1].item<double>() - 2.0 / 3 * 0.1 / (expected + 1e-6)) < 1e-16);
    CHECK((b.grad().scalar_type() == at::kFloat));
  }
  for (const int64_t size : {1, 4}) {
    auto huge = at::ones({size}, at::kDouble).set_requires_grad(true), large = at::ones({size}).set_requires_grad(true);
    huge.mutable_grad() = at::full({size}, 1e200, at::kDouble);
    large.mutable_grad() = at::full({size}, -1e30);
    CHECK(clip_grad_norm_({large}, 1).item<double>() == doctest::Approx(1e30 * std::sqrt(static_cast<double>(size))));
    CHECK(large.grad()[0].item<double>() == doctest::Approx(-1 / std::sqrt(static_cast<double>(size))));
    CHECK(clip_grad_norm_({large, huge}, 2).item<double>() == doctest::Approx(1e200 * std::sqrt(static_cast<double>(size))));
    CHECK(huge.grad()[0].item<double>() == doctest::Approx(2 / std::sqrt(static_cast<double>(size))));
  }
}

TEST_CASE("complex gradients as in torch; sparse and expanded ones are refused by an Error") {
  auto z = at::zeros({2}, at::kComplexFloat).set_requires_grad(true);
  z.mutable_grad() = at::complex(at::tensor({3.0f, 0.0f}), at::tensor({0.0f, 4.0f}));
  CHECK(clip_grad_norm_({z}, 1, kInf).item<float>() == 4);
  CHECK(at::allclose(at::abs(z.grad()), at::tensor({0.75f, 1.0f})));
  CHECK(clip_grad_norm_({z}, 1).item<float>() == doctest::Approx(1.25));
  CHECK(at::allclose(at::abs(z.grad()), at::tensor({0.6f, 0.8f})));
  const auto refused = [](const at::Tensor& gradient, const char* said) {
    auto p = at::zeros(gradient.sizes(), gradient.options().layout(at::kStrided)).set_requires_grad(true);
    p.mutable_grad() = gradient;
    ParameterSet set;
    set.add({.name = "p", .value = p});
    for (const auto& e : {error_of([&] { clip_grad_norm_({p}, 1e-3); }), error_of([&] { clip_grad_norm_(set, 1e9, kInf); }),
                          error_of([&] { clip_grad_value_({p}, 1); }), error_of([&] { clip_grad_value_(set, 1); })}) {
      CHECK(e.kind() == ErrorKind::Usage);
      CHECK_MESSAGE(has(e.what(), said), e.what());
    }
  };
  refused(at::eye(3).to_sparse(), "sparse");
  refused(at::ones({1}).expand({4}), "share");
  CHECK(has(error_of([&] { clip_grad_value_({z}, 1); }).what(), "real numbers"));
}

TEST_CASE("sharded gradients: the reduction sees the parts of the sum of squares, or the largest") {
  const auto set = with_gradients(1);
  const double own = clip_grad_norm_(set, 1e9).item<double>();
  const auto twice = [](at::Tensor& parts) { parts.mul_(2); };
  CHECK(clip_grad_norm_(set, 1e9, 2, twice).item<double>() == doctest::Approx(own * std::sqrt(2.0)).epsilon(1e-6));
  const double largest = clip_grad_norm_(set, 1e9, kInf).item<double>();
  CHECK(clip_grad_norm_(set, 1e9, kInf, [](at::Tensor& v) { v.fill_(77); }).item<double>() == 77);
  CHECK(largest < 77);
  clip_grad_norm_(set, own, 2, [](at::Tensor& parts) { parts.mul_(10000); });
  CHECK(clip_grad_norm_(set, 1e9).item<double>() == doctest::Approx(own / 100).epsilon(1e-4));
}

TEST_CASE("in two halves: the bits of clip_grad_norm_, and another norm where ranks agree on one") {
  for (const double scale : {0.001, 100.0}) {
    const auto a = with_gradients(scale), b = with_gradients(scale);
    const auto expected = clip_grad_norm_(a, 1.0);
    const auto norm = grad_norm(b);
    CHECK(at::equal(norm, expected));
    clip_grads_with_norm_(b, 1.0, norm);
    for (size_t i = 0; i < a.size(); ++i) CHECK(at::equal(a[i].value.grad(), b[i].value.grad()));
  }
  const auto set = with_gradients(1);
  const double own = grad_norm(set).item<double>();
  CHECK(grad_norm(set, kInf).item<double>() < own);
  clip_grads_with_norm_(set, 1.0, at::full({}, 1e4));
  CHECK(grad_norm(set).item<double>() == doctest::Approx(own / 1e4).epsilon(1e-5));
  CHECK(grad_norm(ParameterSet{}).item<double>() == 0);
  CHECK(error_of([&] { grad_norm(set, 1); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { clip_grads_with_norm_(set, 0, at::ones({})); }).kind() == ErrorKind::Usage);
}

TEST_CASE("a norm that is not finite is returned") {
  const auto set = with_gradients(1);
  set[0].value.mutable_grad().fill_(kInf);
  CHECK(std::isinf(clip_grad_norm_(set, 1).item<double>()));
}

TEST_CASE("by value") {
  auto a = at::ones({4}).set_requires_grad(true);
  a.mutable_grad() = at::tensor({-3.0f, -0.5f, 0.5f, 3.0f});
  clip_grad_value_({a}, 1);
  CHECK(at::equal(a.grad(), at::tensor({-1.0f, -0.5f, 0.5f, 1.0f})));
  ParameterSet set;
  set.add({.name = "a", .value = a});
  clip_grad_value_(set, 0.25);
  CHECK(at::equal(a.grad(), at::tensor({-0.25f, -0.25f, 0.25f, 0.25f})));
}

TEST_CASE("invalid limits") {
  const auto set = with_gradients(1);
  CHECK(error_of([&] { clip_grad_norm_(set, 0); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { clip_grad_norm_(set, -1); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { clip_grad_norm_(set, std::numeric_limits<double>::quiet_NaN()); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { clip_grad_norm_(set, 1, 1); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { clip_grad_value_(set, 0); }).kind() == ErrorKind::Usage);
}

TEST_CASE("slices of parameters need the squares of the other ranks") {
  const Parameter all{.name = "all", .value = at::ones({128})};
  ParameterSet slices;
  slices.add(all.slice(0, 64));
  slices[0].value.mutable_grad() = at::ones({64});
  const auto error = error_of([&] { clip_grad_norm_(slices, 1); });
  CHECK(error.kind() == ErrorKind::Usage);
  CHECK(has(error.what(), "all is a slice of 64 of 128 elements"));
  const auto of_two = [](at::Tensor& squares) { squares.mul_(2); };
  CHECK(clip_grad_norm_(slices, 1, 2, of_two).item<double>() == doctest::Approx(std::sqrt(128.0)));
  ParameterSet complete;
  complete.add(all.slice(0, 128));  // with one rank, its slice has all elements
  complete[0].value.mutable_grad() = at::ones({128});
  CHECK(clip_grad_norm_(complete, 1).item<double>() == doctest::Approx(std::sqrt(128.0)));
}

TEST_CASE("the inf norm leaves out slices without elements") {
  const Parameter p{.name = "w", .value = at::zeros({128}).set_requires_grad(true)};
  ParameterSet slices;
  slices.add(p.slice(0, 0));
  ParameterSet more = slices;
  more.add({.name = "rest", .value = p.slice(64, 64).value});
  for (const auto& slice : more) slice.value.mutable_grad() = at::full({slice.value.numel()}, -3.0);
  CHECK(grad_norm(slices, kInf).item<float>() == 0);
  CHECK(grad_norm(more, kInf).item<float>() == 3);
  CHECK(grad_norm(more, 2).item<float>() == 24);
}
