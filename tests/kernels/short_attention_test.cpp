#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <cmath>

#include "double_backward.hpp"
#include "npu_train/kernels/short_attention.hpp"

namespace npu_train {

TEST_CASE("short means: bf16, four dimensions, few keys, and gradients are required") {
  const auto heads = [](int64_t keys, at::ScalarType dtype) { return at::ones({2, 3, keys, 8}, dtype); };
  const at::Tensor trained = heads(65, at::kBFloat16).requires_grad_();
  CHECK(detail::is_short_attention(trained, trained, trained));
  const at::Tensor frozen = heads(65, at::kBFloat16), wide = heads(65, at::kFloat).requires_grad_(),
                   many = heads(257, at::kBFloat16).requires_grad_();
  CHECK_FALSE(detail::is_short_attention(frozen, frozen, frozen));
  CHECK_FALSE(detail::is_short_attention(wide, wide, wide));
  CHECK_FALSE(detail::is_short_attention(many, many, many));
  const auto most = heads(256, at::kBFloat16).requires_grad_(), empty = heads(0, at::kBFloat16).requires_grad_();
  CHECK(detail::is_short_attention(most, most, most));
  CHECK(detail::is_short_attention(many, frozen, frozen));  // has many queries
  CHECK_FALSE(detail::is_short_attention(empty, empty, empty));
  CHECK_FALSE(detail::is_short_attention(trained, most, frozen));
  const at::Tensor fewer_heads = trained.narrow(1, 0, 1), across = at::ones({2, 3, 8, 65}, at::kBFloat16).transpose(2, 3);
  CHECK_FALSE(detail::is_short_attention(trained, fewer_heads, fewer_heads));
  CHECK_FALSE(detail::is_short_attention(trained, across, frozen));
}

TEST_CASE("only the gradients that are required, of any layout, and no double backward") {
  at::manual_seed(2);
  const auto drawn = [] { return at::randn({2, 3, 9, 8}).to(at::kBFloat16); };
  const at::Tensor q = drawn(), k = drawn().requires_grad_(), v = drawn(), up = at::randn({2, 3, 8, 9}).to(at::kBFloat16).transpose(2, 3);
  const auto gradient = [&](const at::Tensor& dy) {
    return torch::autograd::grad({detail::short_attention(q, k, v, false)}, {k}, {dy})[0];
  };
  CHECK(gradient(up).equal(gradient(up.contiguous())));
  detail::short_attention(q, k, v, false).backward(up);
  CHECK(k.grad().defined());
  CHECK_FALSE(q.grad().defined());
  const at::Tensor y = detail::short_attention(q, k, v, false);
  testing::check_no_double_backward(y, k);
}

TEST_CASE("the value is that of libtorch's attention, the gradients are near those in double") {
  at::manual_seed(1);
  std::vector<at::Tensor> in, exact;
  for (int i = 0; i < 3; ++i) in.push_back(at::randn({2, 3, 9, 8}).to(at::kBFloat16).requires_grad_());
  for (const auto& t : in) exact.push_back(t.detach().to(at::kDouble).requires_grad_());
  const at::Tensor y = detail::short_attention(in[0], in[1], in[2], true), up = at::randn(y.sizes()).to(at::kBFloat16);
  CHECK(y.equal(at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, true)));
  y.backward(up);
  at::scaled_dot_product_attention(exact[0], exact[1], exact[2], {}, 0, true).backward(up.to(at::kDouble));
  // Largest error of a gradient. The backward pass treats the result as exact, although libtorch rounded the probabilities, and then their
  // products with the values. This gives an error in each probability's gradient. In addition, each gradient is rounded once.
  constexpr double kUnit = 0x1p-8;
  const at::NoGradGuard no_grad;
  const at::Tensor &q = exact[0], &k = exact[1], &v = exact[2], scale = at::full({}, 1 / std::sqrt(8.0), at::kDouble);
  const at::Tensor later = at::ones({9, 9}, at::kBool).triu(1);
  const at::Tensor p = at::softmax((at::matmul(q, k.transpose(2, 3)) * scale).masked_fill(later, -testing::kInf), 3);
  const at::Tensor of_result = kUnit * (at::matmul(p, v.abs()) + y.to(at::kDouble).abs());
  const at::Tensor of_scores = scale * p * (up.to(at::kDouble).abs() * of_result).sum(3, true);
  const at::Tensor bounds[] = {at::matmul(of_scores, k.abs()), at::matmul(of_scores.transpose(2, 3), q.abs()), at::zeros_like(v)};
  for (size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    const at::Tensor want = exact[i].grad(), fp32_sums = 1e-5 * want.abs().max();
    CHECK(((in[i].grad().to(at::kDouble) - want).abs() <= kUnit * want.abs() + bounds[i] + fp32_sums).all().item<bool>());
  }
}

}  // namespace npu_train
