#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

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
  for (size_t i = 0; i < 3; ++i) CHECK(at::allclose(in[i].grad().to(at::kDouble), exact[i].grad(), 2e-2, 2e-2));
}

}  // namespace npu_train
