#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <optional>

#include "double_backward.hpp"
#include "npu_train/kernels/library_conv.hpp"

namespace npu_train {

TEST_CASE("bf16 on maps narrower than the stride: the weight gradient is that of fp32, rounded") {
  at::manual_seed(1);
  const auto low = [](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); };
  const at::Tensor x = low({4, 8, 1, 1}), w = low({6, 8, 3, 3}), b = low({6}), dy = low({4, 6, 1, 1});
  REQUIRE(detail::has_wrong_weight_gradient(at::kBFloat16, x, w, 2, 1));
  CHECK_FALSE(detail::has_wrong_weight_gradient(at::kFloat, x, w, 2, 1));
  CHECK_FALSE(detail::has_wrong_weight_gradient(at::kBFloat16, low({4, 8, 2, 2}), w, 2, 1));
  CHECK_FALSE(detail::has_wrong_weight_gradient(at::kBFloat16, x, w, 2, 0));
  CHECK_FALSE(detail::has_wrong_weight_gradient(at::kBFloat16, x, low({6, 8, 3, 1}), 2, 1));
  at::Tensor own_x = x.clone().requires_grad_(), own_w = w.clone().requires_grad_(), own_b = b.clone().requires_grad_();
  const at::Tensor y = detail::conv2d_with_right_gradient(own_x, own_w, own_b, 2, 1);
  CHECK(y.equal(detail::plain_conv2d(x, w, b, 2, 1)));
  y.backward(dy);
  at::Tensor x32 = x.to(at::kFloat).requires_grad_(), w32 = w.to(at::kFloat).requires_grad_(), b32 = b.to(at::kFloat).requires_grad_();
  detail::plain_conv2d(x32, w32, b32, 2, 1).backward(dy.to(at::kFloat));
  CHECK(own_w.grad().equal(w32.grad().to(at::kBFloat16)));
  CHECK(own_x.grad().equal(x32.grad().to(at::kBFloat16)));
  CHECK(own_b.grad().equal(b32.grad().to(at::kBFloat16)));
}

TEST_CASE("an absent bias, and a double backward, which is an Error") {
  at::manual_seed(2);
  const auto low = [](at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); };
  const at::Tensor x = low({4, 8, 1, 1}).requires_grad_(), w = low({6, 8, 3, 3}).requires_grad_();
  const at::Tensor y = detail::conv2d_with_right_gradient(x, w, std::nullopt, 2, 1), up = low(y.sizes());
  testing::check_no_double_backward(y, w);
  y.backward(up);
  CHECK((x.grad().defined() && w.grad().defined()));
}

TEST_CASE("the gradients of groups") {
  at::manual_seed(3);
  const at::Tensor x = at::randn({2, 6, 5, 5}).requires_grad_(), w = at::randn({4, 3, 3, 3}).requires_grad_();
  const at::Tensor y = at::conv2d(x, w, {}, 1, 1, 1, 2), dy = at::randn(y.sizes());
  const auto want = torch::autograd::grad({y}, {x, w}, {dy});
  const auto out = detail::library_conv2d_backward(dy, x.detach(), w.detach(), 1, 1, {true, true, false});
  CHECK(out[0].equal(want[0]));
  CHECK(out[1].equal(want[1]));
}

TEST_CASE("only the gradients that are required") {
  const at::Tensor x = at::randn({2, 3, 5, 5}), w = at::randn({4, 3, 3, 3}), dy = at::randn({2, 4, 5, 5});
  const auto out = detail::library_conv2d_backward(dy, x, w, 1, 1, {false, true, false});
  CHECK_FALSE(out[0].defined());
  CHECK(out[1].sizes() == w.sizes());
  CHECK_FALSE(out[2].defined());
}

}  // namespace npu_train
