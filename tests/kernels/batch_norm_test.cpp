#include "testing.hpp"

#include <ATen/ATen.h>

#include <vector>

#include "double_backward.hpp"
#include "npu_train/kernels/batch_norm.hpp"
#include "npu_train/kernels/running_updates.hpp"

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

// Covers both layouts, rows that fit one chunk, and rows in several chunks of which the last is short.
TEST_CASE("the gradients are those of batch norm, sum and ReLU in double, rounded once to the dtype of the map") {
  struct Stored {
    at::ScalarType dtype;
    double unit;  // largest relative error of one rounding
  };
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{3, 20, 7, 5}, {5, 1100, 3, 4}}) {
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      for (const auto& stored : {Stored{at::kFloat, 0}, Stored{at::kBFloat16, 0x1p-8}, Stored{at::kHalf, 0x1p-11}}) {
        for (const bool with_residual : {false, true}) {
          for (const bool relu : {false, true}) {
            CAPTURE(sizes[1]);
            CAPTURE(format == at::MemoryFormat::ChannelsLast);
            CAPTURE(stored.unit);
            CAPTURE(with_residual);
            CAPTURE(relu);
            at::manual_seed(2);
            const auto drawn = [&] { return at::randn(sizes).contiguous(format).to(stored.dtype); };
            auto bn = args_of(sizes[1]);
            std::vector<at::Tensor> in = {drawn(), bn.weight, bn.bias}, exact;
            if (with_residual) in.push_back(drawn());
            for (auto& t : in) exact.push_back(t.to(at::kDouble).requires_grad_()), t.requires_grad_();
            at::Tensor want = at::batch_norm(exact[0], exact[1], exact[2], {}, {}, true, 0.1, 1e-5, false);
            if (with_residual) want = want + exact[3];
            // Sets no gradient next to the kink of the ReLU, where the rounding of the result decides.
            const at::Tensor up = drawn() * want.detach().abs().gt(1e-4);
            if (relu) want = at::relu(want);
            detail::train_batch_norm(in[0], bn, with_residual ? in[3] : at::Tensor(), relu).backward(up);
            want.backward(up.to(at::kDouble));
            for (size_t i = 0; i < in.size(); ++i) {
              CAPTURE(i);
              const at::Tensor got = in[i].grad(), wanted = exact[i].grad();
              REQUIRE(got.sizes() == wanted.sizes());
              CHECK((got.scalar_type() == in[i].scalar_type()));
              const double unit = got.scalar_type() == at::kFloat ? 0 : stored.unit;
              CHECK(at::allclose(got.to(at::kDouble), wanted, unit, 1e-5 * wanted.abs().max().item<double>()));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("operands in another layout are converted") {
  at::manual_seed(3);
  for (const bool rows : {false, true}) {
    const auto format = rows ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    const auto other = rows ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
    const at::Tensor x = at::randn({3, 20, 7, 5}).contiguous(format), residual = at::randn(x.sizes()), up = at::randn(x.sizes());
    std::vector<at::Tensor> expected;
    for (const auto as : {format, other}) {
      at::Tensor in = x.detach().clone().requires_grad_();
      at::manual_seed(4);
      auto bn = args_of(20);
      const at::Tensor y = detail::train_batch_norm(in, bn, residual.contiguous(as), true);
      y.backward(up.contiguous(as));
      const std::vector<at::Tensor> got = {y.detach(), in.grad(), detail::evaluate_batch_norm(x, bn, residual.contiguous(as), true)};
      if (expected.empty()) expected = got;
      for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].equal(expected[i]));
    }
  }
}

TEST_CASE("moves of running statistics are collected, and can be repeated") {
  at::manual_seed(5);
  const auto bn = args_of(20);
  const at::Tensor x = at::randn({3, 20, 7, 5}) + 2, mean = bn.running_mean.clone(), var = bn.running_var.clone();
  detail::RunningUpdates collector;
  detail::train_batch_norm(x, bn, {}, false);
  REQUIRE(collector.updates().size() == 2);
  CHECK(collector.updates()[0].running.is_same(bn.running_mean));
  CHECK(collector.updates()[0].before.equal(mean));
  CHECK(collector.updates()[1].running.is_same(bn.running_var));
  CHECK(collector.updates()[1].before.equal(var));
  for (const auto& update : collector.updates()) {
    CHECK_FALSE(update.running.equal(update.before));
    detail::move_running(update.before, update.keep, update.added);
    CHECK(update.running.equal(update.before));
  }
}

TEST_CASE("a double backward is an Error") {
  const at::Tensor x = at::randn({3, 4, 5, 5}).requires_grad_();
  const at::Tensor y = detail::train_batch_norm(x, args_of(4), {}, true);
  testing::check_no_double_backward(y, x);
}

TEST_CASE("tensors of other dtypes, strided parameters and empty maps have no kernel") {
  const auto bn = args_of(4);
  const at::Tensor x = at::randn({2, 4, 3, 3});
  CHECK(detail::has_batch_norm_kernel(x, bn, {}));
  CHECK_FALSE(detail::has_batch_norm_kernel(at::ones({0, 4, 3, 3}), bn, {}));
  CHECK_FALSE(detail::has_batch_norm_kernel(at::_neg_view(x), bn, {}));
  for (at::Tensor BatchNormArgs::*one :
       {&BatchNormArgs::weight, &BatchNormArgs::bias, &BatchNormArgs::running_mean, &BatchNormArgs::running_var}) {
    auto wide = bn, strided = bn;
    wide.*one = at::ones({4}, at::kDouble);
    strided.*one = at::ones({8}).slice(0, 0, 8, 2);
    CHECK_FALSE(detail::has_batch_norm_kernel(x, wide, {}));
    CHECK_FALSE(detail::has_batch_norm_kernel(x, strided, {}));
  }
  auto without = bn;
  without.running_mean = without.running_var = at::Tensor();
  CHECK(detail::has_batch_norm_kernel(x, without, {}));
  CHECK(detail::has_batch_norm_kernel(x.to(at::kHalf), bn, {}));
  CHECK_FALSE(detail::has_batch_norm_kernel(x.to(at::kDouble), bn, {}));
  CHECK_FALSE(detail::has_batch_norm_kernel(x, bn, x.to(at::kBFloat16)));
  auto low = bn;
  low.weight = bn.weight.to(at::kBFloat16);
  CHECK_FALSE(detail::has_batch_norm_kernel(x, low, {}));
}

}  // namespace npu_train
