#include "testing.hpp"

#include <ATen/ATen.h>

#include "double_backward.hpp"
#include "npu_train/kernels/lowered_conv.hpp"

namespace npu_train {
namespace {

struct Case {
  int64_t side, kernel, stride, padding;
};

}  // namespace

TEST_CASE("a lowered convolution gives the value and the gradients of conv2d in double") {
  at::manual_seed(1);
  for (const auto& [side, kernel, stride, padding] : {Case{9, 1, 1, 0}, Case{2, 3, 1, 1}, Case{5, 1, 2, 0}}) {
    CAPTURE(kernel);
    at::Tensor x = at::randn({3, 8, side, side}).contiguous(at::MemoryFormat::ChannelsLast),
               w = at::randn({6, 8, kernel, kernel}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor x64 = x.to(at::kDouble).requires_grad_(), w64 = w.to(at::kDouble).requires_grad_();
    x.requires_grad_(), w.requires_grad_();
    REQUIRE(detail::has_lowered_conv(x, w, stride, padding, false));
    const at::Tensor y = detail::lowered_conv(x, w, stride, padding, false);
    const at::Tensor want = at::conv2d(x64, w64, {}, {stride, stride}, at::IntArrayRef{padding, padding});
    CHECK(at::allclose(y.to(at::kDouble), want, 1e-5, 1e-5));
    const at::Tensor up = at::randn(want.sizes());
    y.backward(up);
    want.backward(up.to(at::kDouble));
    CHECK(at::allclose(x.grad().to(at::kDouble), x64.grad(), 1e-5, 1e-5));
    CHECK(at::allclose(w.grad().to(at::kDouble), w64.grad(), 1e-5, 1e-4));
  }
}

TEST_CASE("emulated low precision: products of rounded numbers in fp32, rounded once, of every form") {
  at::manual_seed(2);
  for (const auto& [side, kernel, stride, padding] : {Case{5, 1, 1, 0}, Case{9, 1, 2, 0}, Case{2, 3, 1, 1}}) {
    CAPTURE(side);
    const auto low = [](at::IntArrayRef sizes) { return at::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast).to(at::kBFloat16); };
    at::Tensor x = low({3, 8, side, side}), w = low({6, 8, kernel, kernel});
    at::Tensor x32 = x.to(at::kFloat).requires_grad_(), w32 = w.to(at::kFloat).requires_grad_();
    x.requires_grad_(), w.requires_grad_();
    const at::Tensor y = detail::lowered_conv(x, w, stride, padding, false), y32 = detail::lowered_conv(x32, w32, stride, padding, false);
    REQUIRE((y.scalar_type() == at::kBFloat16));
    CHECK(y.equal(y32.to(at::kBFloat16)));
    const at::Tensor up = low(y.sizes());
    y.backward(up);
    y32.backward(up.to(at::kFloat));
    CHECK(x.grad().equal(x32.grad().to(at::kBFloat16)));
    CHECK(w.grad().equal(w32.grad().to(at::kBFloat16)));
  }
}

TEST_CASE("only the gradients that are required, and no double backward") {
  for (const int64_t kernel : {1, 3}) {
    const at::Tensor x = at::randn({2, 8, 9, 9}).contiguous(at::MemoryFormat::ChannelsLast), w = at::randn({4, 8, kernel, kernel});
    for (const bool of_weight : {false, true}) {
      const at::Tensor in = x.clone().requires_grad_(!of_weight), weight = w.clone().requires_grad_(of_weight);
      const at::Tensor y = detail::lowered_conv(in, weight, 1, kernel / 2, false);
      const at::Tensor& trained = of_weight ? weight : in;
      testing::check_no_double_backward(y, trained);
      y.sum().backward();
      CHECK(in.grad().defined() == !of_weight);
      CHECK(weight.grad().defined() == of_weight);
    }
  }
}

TEST_CASE("contiguous tensors, other devices' layouts and groups are not lowered") {
  const at::Tensor x = at::randn({2, 8, 6, 6}), w = at::randn({4, 8, 1, 1});
  CHECK_FALSE(detail::has_lowered_conv(x, w, 1, 0, false));
  const at::Tensor last = x.contiguous(at::MemoryFormat::ChannelsLast);
  CHECK(detail::has_lowered_conv(last, w, 1, 0, false));
  CHECK_FALSE(detail::has_lowered_conv(last, at::randn({4, 4, 1, 1}), 1, 0, false));
  CHECK_FALSE(detail::has_lowered_conv(last.select(0, 0), w, 1, 0, false));
  const auto laid_out = [](at::IntArrayRef sizes) { return at::ones(sizes).contiguous(at::MemoryFormat::ChannelsLast); };
  CHECK(detail::has_lowered_conv(laid_out({2, 8, 1, 1}), laid_out({4, 8, 3, 3}), 1, 1, false));
  CHECK_FALSE(detail::has_lowered_conv(laid_out({0, 8, 1, 1}), laid_out({4, 8, 3, 3}), 1, 1, false));
  CHECK_FALSE(detail::has_lowered_conv(laid_out({1, 256, 4, 4}), laid_out({256, 256, 1, 1}), 1, -1, false));
  CHECK_FALSE(detail::has_lowered_conv(last, at::randn({4, 8, 7, 7}), 1, 0, false));
  CHECK_FALSE(detail::has_lowered_conv(last.narrow(3, 0, 1), at::randn({4, 8, 1, 2}), 1, 0, false));
  CHECK_FALSE(detail::has_lowered_conv(last, w, 0, 0, false));
}

}  // namespace npu_train
