#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include "npu_train/kernels/emulated_ops.hpp"

namespace npu_train {
namespace {

at::Tensor low(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }
at::Tensor wide(const at::Tensor& t) { return t.detach().to(at::kFloat); }

}  // namespace

TEST_CASE("emulated operators compute in fp32 and round once") {
  at::manual_seed(1);
  const at::Tensor a = low({5, 7}), b = low({7, 3}), c = low({3});
  CHECK(detail::emulated_product(c, a, b, 0.5, 2).equal(at::addmm(wide(c), wide(a), wide(b), 0.5, 2).to(at::kBFloat16)));
  const at::Tensor x = low({2, 4, 6, 6}), w = low({8, 2, 3, 3});
  const auto y = detail::emulated_convolution(
      x, w, std::nullopt, {.stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 1}, .output_padding = {0, 0}, .groups = 2});
  CHECK(y.equal(at::conv2d(wide(x), wide(w), {}, {2, 2}, at::IntArrayRef{1, 1}, 1, 2).to(at::kBFloat16)));
  const at::Tensor q = low({2, 3, 5, 8});
  CHECK(detail::emulated_attention(q, q, q, std::nullopt, {.causal = true, .scale = std::nullopt})
            .equal(at::scaled_dot_product_attention(wide(q), wide(q), wide(q), {}, 0, true).to(at::kBFloat16)));
}

TEST_CASE("each gradient is rounded once, and a double backward is an Error") {
  at::manual_seed(2);
  const at::Tensor a = low({5, 7}).requires_grad_(), b = low({7, 3}).requires_grad_(), up = low({5, 3});
  detail::emulated_product(std::nullopt, a, b).backward(up);
  CHECK(a.grad().equal(at::mm(wide(up), wide(b).t()).to(at::kBFloat16)));
  CHECK(b.grad().equal(at::mm(wide(a).t(), wide(up)).to(at::kBFloat16)));
  const at::Tensor y = detail::emulated_product(std::nullopt, a, b);
  const auto e = testing::error_of([&] { torch::autograd::grad({y}, {a}, {up}, true, /*create_graph=*/true); });
  CHECK(testing::has(e.what(), "double backward"));
}

}  // namespace npu_train
