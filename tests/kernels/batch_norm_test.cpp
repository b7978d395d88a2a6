#include "testing.hpp"

#include <ATen/ATen.h>

#include "npu_train/kernels/batch_norm.hpp"

namespace npu_train {
namespace {

double off_from(const at::Tensor& got, const at::Tensor& want) { return (got.to(at::kDouble) - want).abs().max().item<double>(); }

BatchNormArgs args_of(int64_t channels) {
  return {.weight = at::rand({channels}) + 0.5,
          .bias = at::randn({channels}),
          .running_mean = at::zeros({channels}),
          .running_var = at::ones({channels})};
}

}  // namespace

TEST_CASE("training and evaluation give the values of batch norm, sum and ReLU in double") {
  at::manual_seed(1);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const at::Tensor x = at::randn({3, 20, 7, 5}).contiguous(format), residual = at::randn({3, 20, 7, 5}).contiguous(format);
    auto bn = args_of(20);
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const at::Tensor mean = wide(bn.running_mean), var = wide(bn.running_var);
    const auto want = [&](bool training) {
      return at::relu(at::batch_norm(wide(x), wide(bn.weight), wide(bn.bias), mean, var, training, 0.1, 1e-5, false) + wide(residual));
    };
    REQUIRE(detail::has_batch_norm_kernel(x, bn, residual));
    CHECK(off_from(detail::train_batch_norm(x, bn, residual, true), want(true)) < 1e-5);
    CHECK(off_from(bn.running_mean, mean) < 1e-6);
    CHECK(off_from(bn.running_var, var) < 1e-6);
    CHECK(off_from(detail::evaluate_batch_norm(x, bn, residual, true), want(false)) < 1e-5);
  }
}

TEST_CASE("tensors of other dtypes have no kernel") {
  const auto bn = args_of(4);
  const at::Tensor x = at::randn({2, 4, 3, 3});
  CHECK(detail::has_batch_norm_kernel(x, bn, {}));
  CHECK(detail::has_batch_norm_kernel(x.to(at::kHalf), bn, {}));
  CHECK_FALSE(detail::has_batch_norm_kernel(x.to(at::kDouble), bn, {}));
  CHECK_FALSE(detail::has_batch_norm_kernel(x, bn, x.to(at::kBFloat16)));
  auto low = bn;
  low.weight = bn.weight.to(at::kBFloat16);
  CHECK_FALSE(detail::has_batch_norm_kernel(x, low, {}));
}

}  // namespace npu_train
