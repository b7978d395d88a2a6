#include "testing.hpp"

#include "double_backward.hpp"
#include "npu_train/nn/batch_norm_act.hpp"
#include "reference/low_precision.hpp"

#include <torch/nn.h>
#include <torch/types.h>

#include <limits>

namespace npu_train {
namespace {

// Inputs for both sides: the fused operation in fp32, and ATen's operations in fp64.
struct Case {
  at::Tensor x, residual, weight, bias, mean, var;

  static Case random(at::IntArrayRef sizes, bool with_residual, at::MemoryFormat format) {
    const auto channels = sizes[1];
    Case c;
    std::vector<int64_t> per_channel(sizes.size(), 1);
    per_channel[1] = channels;
    c.x = (torch::randn(sizes) * 2 + torch::randn(per_channel) * 3).contiguous(format);
    if (with_residual) c.residual = torch::randn(sizes).contiguous(format);
    c.weight = torch::randn({channels});
    c.bias = torch::randn({channels});
    c.mean = torch::randn({channels});
    c.var = torch::rand({channels}) + 0.5;
    return c;
  }
  Case to(at::ScalarType type) const {
    Case c;
    const auto copy = [&](const at::Tensor& t, at::Tensor& into) {
      if (t.defined()) into = t.detach().to(type, false, true);
    };
    copy(x, c.x), copy(residual, c.residual), copy(weight, c.weight), copy(bias, c.bias), copy(mean, c.mean), copy(var, c.var);
    return c;
  }
  void track() {
    for (auto* t : {&x, &residual, &weight, &bias})
      if (t->defined()) t->set_requires_grad(true);
  }
  BatchNormArgs args(bool training) const { return {weight, bias, mean, var, training, 0.3, 1e-5}; }
};

at::Tensor reference(const Case& c, bool training, bool relu) {
  at::Tensor y = torch::batch_norm(c.x, c.weight, c.bias, c.mean, c.var, training, 0.3, 1e-5, false);
  if (c.residual.defined()) y = y + c.residual;
  return relu ? torch::relu(y) : y;
}

double error(const at::Tensor& got, const at::Tensor& want) {
  return ((got.to(at::kDouble) - want).abs().max() / want.abs().max().clamp_min(1e-30)).item<double>();
}

// Compares with ATen. Leaves out the gradients of values next to the kink, which may be on either side of it.
void check_against_aten(at::IntArrayRef sizes, bool with_residual, bool relu, at::MemoryFormat format) {
  CAPTURE(sizes.size());
  CAPTURE(sizes[0]);
  CAPTURE(sizes[1]);
  CAPTURE(with_residual);
  CAPTURE(relu);
  Case ours = Case::random(sizes, with_residual, format), want = ours.to(at::kDouble);
  ours.track();
  want.track();
  Case other = ours.to(at::kDouble);
  const at::Tensor y = batch_norm_act(ours.x, ours.args(true), ours.residual, relu), wanted = reference(want, true, relu);
  CHECK(y.strides().equals(ours.x.strides()));
  CHECK(error(y, wanted) < 3e-6);
  CHECK(error(ours.mean, want.mean) < 1e-6);
  CHECK(error(ours.var, want.var) < 2e-6);
  // Sets no gradient for a value next to 0: rounding may decide on which side of the ReLU it is.
  const at::Tensor up = torch::randn(sizes) * reference(other, true, false).detach().abs().gt(1e-4).to(at::kFloat);
  y.backward(up);
  wanted.backward(up.to(at::kDouble));
  CHECK(error(ours.x.grad(), want.x.grad()) < 2e-5);
  CHECK(error(ours.weight.grad(), want.weight.grad()) < 5e-6);
  CHECK(error(ours.bias.grad(), want.bias.grad()) < 1e-5);
  if (with_residual) CHECK(error(ours.residual.grad(), want.residual.grad()) < 1e-6);
}

TEST_CASE("training: values, statistics and gradients are those of ATen in double") {
  torch::manual_seed(1);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const bool residual : {false, true})
      for (const bool relu : {false, true}) {
        check_against_aten({4, 16, 6, 5}, residual, relu, format);
        check_against_aten({3, 13, 7, 7}, residual, relu, format);    // the channels are not a multiple of the vector's lanes
        check_against_aten({128, 70, 1, 1}, residual, relu, format);  // maps of one pixel
        check_against_aten({2, 3, 90, 91}, residual, relu, format);   // planes longer than a piece
        check_against_aten({1, 1, 3, 3}, residual, relu, format);
        check_against_aten({33, 1100, 3, 2}, residual, relu, format);  // more channels than a tile, and a remainder of rows
      }
}

TEST_CASE("training: other ranks") {
  torch::manual_seed(2);
  check_against_aten({37, 19}, true, true, at::MemoryFormat::Contiguous);
  check_against_aten({5, 19, 11}, true, true, at::MemoryFormat::Contiguous);
  check_against_aten({2, 9, 3, 4, 5}, true, true, at::MemoryFormat::Contiguous);
  check_against_aten({2, 9, 3, 4, 5}, true, true, at::MemoryFormat::ChannelsLast3d);
}

TEST_CASE("operands with different memory layouts are converted to one") {
  torch::manual_seed(3);
  Case c = Case::random({4, 6, 5, 8}, true, at::MemoryFormat::ChannelsLast), want = c.to(at::kDouble);
  c.residual = c.residual.contiguous();
  c.track();
  want.track();
  const at::Tensor y = batch_norm_act(c.x, c.args(true), c.residual, true), wanted = reference(want, true, true);
  y.sum({2, 3}).mul(torch::randn({4, 6})).sum().backward();  // gives an expanded gradient
  CHECK(error(y, wanted) < 3e-6);
  const Case strided = c.to(at::kFloat);
  const at::Tensor half = strided.x.slice(3, 0, 8, 2), res = strided.residual.slice(3, 0, 8, 2);
  CHECK(
      batch_norm_act(half, strided.args(true), res, true).equal(batch_norm_act(half.contiguous(), c.to(at::kFloat).args(true), res, true)));
}

TEST_CASE("statistics hold where the mean is large against the spread") {
  torch::manual_seed(4);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    Case c = Case::random({16, 24, 20, 20}, false, format);
    c.x = (torch::randn({16, 24, 20, 20}) * 0.01 + 100).contiguous(format);
    c.mean.zero_();
    c.var.zero_();
    const Case want = c.to(at::kDouble);
    batch_norm_act(c.x, c.args(true), {}, false);
    reference(want, true, false);
    CHECK(error(c.mean, want.mean) < 1e-6);
    CHECK(error(c.var, want.var) < 1e-5);
  }
}

TEST_CASE("only the gradients that are required") {
  torch::manual_seed(5);
  for (int wanted = 1; wanted < 16; ++wanted) {
    Case c = Case::random({3, 5, 4, 4}, true, at::MemoryFormat::ChannelsLast), all = c.to(at::kFloat);
    all.track();
    at::Tensor* some[] = {&c.x, &c.residual, &c.weight, &c.bias};
    for (int i = 0; i < 4; ++i) some[i]->set_requires_grad((wanted >> i & 1) != 0);
    const at::Tensor up = torch::randn({3, 5, 4, 4});
    batch_norm_act(c.x, c.args(true), c.residual, true).backward(up);
    batch_norm_act(all.x, all.args(true), all.residual, true).backward(up);
    const at::Tensor every[] = {all.x, all.residual, all.weight, all.bias};
    for (int i = 0; i < 4; ++i) {
      CHECK(some[i]->grad().defined() == ((wanted >> i & 1) != 0));
      if (some[i]->grad().defined()) CHECK(some[i]->grad().allclose(every[i].grad(), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("evaluation, with and without gradients") {
  torch::manual_seed(6);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    Case c = Case::random({3, 13, 7, 7}, true, format), want = c.to(at::kDouble);
    const at::Tensor mean = c.mean.clone();
    {
      at::NoGradGuard no_grad;
      CHECK(error(batch_norm_act(c.x, c.args(false), c.residual, true), reference(want, false, true)) < 2e-6);
    }
    c.track();
    want.track();
    const at::Tensor y = batch_norm_act(c.x, c.args(false), c.residual, true), wanted = reference(want, false, true);
    y.sum().backward();
    wanted.sum().backward();
    CHECK(error(c.x.grad(), want.x.grad()) < 2e-5);
    CHECK(error(c.residual.grad(), want.residual.grad()) < 2e-5);
    CHECK(c.mean.equal(mean));
  }
}

TEST_CASE("training without gradients moves the statistics; without running statistics the batch's are used") {
  torch::manual_seed(7);
  Case c = Case::random({3, 13, 7, 7}, false, at::MemoryFormat::ChannelsLast), want = c.to(at::kDouble);
  at::NoGradGuard no_grad;
  const at::Tensor y = batch_norm_act(c.x, c.args(true), {}, true);
  CHECK(!y.requires_grad());
  CHECK(error(y, reference(want, true, true)) < 2e-6);
  CHECK(error(c.mean, want.mean) < 1e-6);
  c.mean = c.var = at::Tensor();
  CHECK(batch_norm_act(c.x, c.args(false), {}, true).equal(y));
}

TEST_CASE("what is not finite shows up where ATen shows it") {
  torch::manual_seed(8);
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const float bad : {inf, -inf, nan}) {
      for (const bool in_residual : {false, true}) {
        Case c = Case::random({3, 6, 4, 4}, true, format);
        (in_residual ? c.residual : c.x).index_put_({1, 2, 3, 0}, bad);
        Case want = c.to(at::kFloat);
        c.track();
        want.track();
        const at::Tensor y = batch_norm_act(c.x, c.args(true), c.residual, true), wanted = reference(want, true, true);
        CHECK(y.isnan().equal(wanted.isnan()));
        CHECK(y.isinf().equal(wanted.isinf()));
        CHECK(c.mean.isfinite().equal(want.mean.isfinite()));
        CHECK(c.var.isfinite().equal(want.var.isfinite()));
        y.sum().backward();
        wanted.sum().backward();
        CHECK(c.x.grad().isfinite().equal(want.x.grad().isfinite()));
        CHECK(c.weight.grad().isfinite().equal(want.weight.grad().isfinite()));
      }
    }
  }
}

TEST_CASE("the gradient passes where the result is above zero, not at zero") {
  Case c = Case::random({2, 4, 3, 3}, true, at::MemoryFormat::ChannelsLast);
  c.weight.zero_();
  c.bias.zero_();
  c.residual.zero_();
  c.residual.index_put_({0, 1, 1, 1}, 2.0F);
  c.track();
  batch_norm_act(c.x, c.args(true), c.residual, true).sum().backward();
  CHECK(c.residual.grad().sum().item<float>() == 1);
  CHECK(c.bias.grad().sum().item<float>() == 1);
}

TEST_CASE("without a residual the mask is that of the result, bit for bit") {
  torch::manual_seed(12);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    Case c = Case::random({8, 37, 11, 13}, false, format);
    c.x = (torch::randint(-2, 3, {8, 37, 11, 13}).to(at::kFloat)).contiguous(format);  // many values are at the kink
    c.bias = -torch::batch_norm(c.x, c.weight, torch::zeros({37}), {}, {}, true, 0, 1e-5, false).select(3, 0).select(2, 0).select(0, 0);
    c.bias = c.bias.contiguous();
    c.track();
    const at::Tensor y = batch_norm_act(c.x, c.args(true), {}, true);
    y.sum().backward();
    CHECK(c.bias.grad().equal(y.detach().gt(0).sum({0, 2, 3}).to(at::kFloat)));
  }
}

TEST_CASE("the same bits for any number of threads") {
  torch::manual_seed(9);
  const int before = at::get_num_threads();
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const Case c = Case::random({16, 64, 28, 28}, true, format);
    const at::Tensor up = torch::randn({16, 64, 28, 28});
    std::vector<at::Tensor> first;
    for (const int threads : {1, 2, 5}) {
      at::set_num_threads(threads);
      Case run = c.to(at::kFloat);
      run.track();
      const at::Tensor y = batch_norm_act(run.x, run.args(true), run.residual, true);
      y.backward(up);
      const std::vector<at::Tensor> got = {y.detach(), run.x.grad(), run.weight.grad(), run.bias.grad(), run.var};
      if (first.empty()) first = got;
      for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].equal(first[i]));
    }
  }
  at::set_num_threads(before);
}

TEST_CASE("low precision and mixed types take ATen's way") {
  torch::manual_seed(10);
  const Case c = Case::random({4, 8, 5, 5}, true, at::MemoryFormat::ChannelsLast);
  Case half = c.to(at::kFloat), want = c.to(at::kFloat);
  half.x = half.x.to(at::kBFloat16);
  half.residual = half.residual.to(at::kBFloat16);
  const at::Tensor y = batch_norm_act(half.x, half.args(true), half.residual, true);
  CHECK((y.scalar_type() == at::kBFloat16));
  // x, the residual and y are rounded to bf16, each by up to 2^-9.
  CHECK(y.to(at::kFloat).allclose(reference(want, true, true), 0.05, 0.05));
  Case full = c.to(at::kDouble);
  CHECK(batch_norm_act(full.x, full.args(true), full.residual, true).equal(reference(c.to(at::kDouble), true, true)));
  Case plain = c.to(at::kFloat);
  plain.weight = plain.bias = at::Tensor();
  CHECK(batch_norm_act(plain.x, plain.args(true), {}, false).mean().abs().item<float>() < 1e-5);
}

TEST_CASE("invalid arguments are reported") {
  const Case c = Case::random({2, 4, 3, 3}, false, at::MemoryFormat::Contiguous);
  const auto usage = [](auto&& fn) { CHECK(testing::error_of(fn).kind() == ErrorKind::Usage); };
  usage([&] { batch_norm_act(torch::randn({1, 4, 1, 1}), c.args(true)); });
  usage([&] { batch_norm_act(torch::randn({1, 4}), c.args(true)); });
  usage([&] { batch_norm_act(torch::randn({2, 5, 3, 3}), c.args(true)); });
  usage([&] { batch_norm_act(c.x, c.args(true), torch::randn({2, 4, 3, 1})); });
  usage([&] { batch_norm_act(torch::randn({4}), c.args(true)); });
  usage([&] { batch_norm_act({}, c.args(true)); });
  CHECK(batch_norm_act(torch::randn({1, 4, 1, 1}), c.args(false)).numel() == 4);

  Case twice = c.to(at::kFloat);
  twice.track();
  const at::Tensor y = batch_norm_act(twice.x, twice.args(true));
  testing::check_no_double_backward(y, twice.x);
}

TEST_CASE("a saved tensor changed in place is noticed by the backward pass") {
  Case c = Case::random({2, 4, 3, 3}, true, at::MemoryFormat::Contiguous);
  c.track();
  const at::Tensor y = batch_norm_act(c.x, c.args(true), c.residual);
  {
    at::NoGradGuard no_grad;
    y.add_(1);
  }
  CHECK_THROWS(y.sum().backward());
}

}  // namespace
}  // namespace npu_train

using namespace npu_train;

TEST_CASE("stored in bf16 or fp16: computed in fp32 from what is stored, rounded once, forward and backward") {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
      for (const bool with_residual : {false, true}) {
        at::manual_seed(3);
        const auto stored = [&](double scale) { return (at::randn({4, 24, 9, 7}) * scale).contiguous(format).to(dtype); };
        const at::Tensor x = stored(2), residual = stored(1), dy = stored(1), weight = at::rand({24}) + 0.5, bias = at::randn({24});
        const auto run = [&](at::ScalarType type) {
          at::Tensor in = x.to(type, false, true).requires_grad_(true), add = residual.to(type, false, true).requires_grad_(true);
          at::Tensor w = weight.clone().requires_grad_(true), b = bias.clone().requires_grad_(true);
          at::Tensor mean = at::zeros({24}), var = at::ones({24});
          const BatchNormArgs bn{.weight = w, .bias = b, .running_mean = mean, .running_var = var};
          const at::Tensor y = batch_norm_act(in, bn, with_residual ? add : at::Tensor(), true);
          y.backward(dy.to(type));
          std::vector<at::Tensor> out = {y.detach(), in.grad(), w.grad(), b.grad(), mean, var};
          if (with_residual) out.push_back(add.grad());
          const at::NoGradGuard no_grad;
          out.push_back(batch_norm_act(in, {.weight = w, .bias = b, .running_mean = mean, .running_var = var, .training = false}));
          return out;
        };
        const auto low = run(dtype), fp32 = run(at::kFloat);
        CHECK((low[0].scalar_type() == dtype));
        CHECK(low[0].is_contiguous(format));
        // With a residual, the mask of the ReLU comes from the rounded result, so gradients of values that round to zero differ.
        for (size_t i = 0; i < low.size(); ++i) {
          CAPTURE(i);
          const bool masked = with_residual && (i == 1 || i == 2 || i == 3 || i == 6);
          if (masked || low[i].scalar_type() == at::kFloat)
            CHECK(at::allclose(low[i].to(at::kFloat), fp32[i], masked ? 0.02 : 1e-5, masked ? 0.02 : 1e-5));
          else
            CHECK(reference::spacings_apart(low[i], reference::Array(fp32[i]), dtype) <= 0.5001);
        }
      }
    }
  }
}
