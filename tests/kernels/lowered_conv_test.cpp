#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include "npu_train/kernels/lowered_conv.hpp"

namespace npu_train {

TEST_CASE("a lowered convolution gives the value and the gradients of conv2d in double") {
  at::manual_seed(1);
  struct Case {
    int64_t side, kernel, stride, padding;
  };
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

TEST_CASE("contiguous tensors, other devices' layouts and groups are not lowered") {
  const at::Tensor x = at::randn({2, 8, 6, 6}), w = at::randn({4, 8, 1, 1});
  CHECK_FALSE(detail::has_lowered_conv(x, w, 1, 0, false));
  const at::Tensor last = x.contiguous(at::MemoryFormat::ChannelsLast);
  CHECK(detail::has_lowered_conv(last, w, 1, 0, false));
  CHECK_FALSE(detail::has_lowered_conv(last, at::randn({4, 4, 1, 1}), 1, 0, false));
  CHECK_FALSE(detail::has_lowered_conv(last.select(0, 0), w, 1, 0, false));
}

}  // namespace npu_train
