#include "testing.hpp"

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "double_backward.hpp"
#include "npu_train/kernels/emulated_ops.hpp"
#include "reference/low_precision.hpp"

namespace npu_train {
namespace {

at::Tensor low(at::IntArrayRef sizes) { return at::randn(sizes).to(at::kBFloat16); }
at::Tensor wide(const at::Tensor& t) { return t.detach().to(at::kFloat); }
std::optional<at::Tensor> present(const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

// Compares fn(operands), the emulated operator in bf16, with reference(operands), libtorch in fp32: values and gradients must be equal when
// rounded once. An operand may be undefined.
template <class Fn, class Reference>
void check_rounded_once(std::vector<at::Tensor> operands, const Fn& fn, const Reference& reference) {
  std::vector<at::Tensor> exact;
  for (auto& t : operands) {
    exact.push_back(t.defined() ? wide(t).requires_grad_() : t);
    if (t.defined()) t.requires_grad_();
  }
  const auto apart = [](const at::Tensor& got, const at::Tensor& want) {
    REQUIRE((got.scalar_type() == at::kBFloat16));
    REQUIRE(got.sizes() == want.sizes());
    return reference::spacings_apart(got.detach(), reference::Array(want.detach()), at::kBFloat16);
  };
  at::manual_seed(3);  // seeds dropout
  const at::Tensor y = fn(operands);
  at::manual_seed(3);
  const at::Tensor want = reference(exact);
  CHECK(apart(y, want) <= 0.5001);
  const at::Tensor up = low(want.sizes());
  y.backward(up);
  want.backward(wide(up));
  for (size_t i = 0; i < operands.size(); ++i) {
    CAPTURE(i);
    if (operands[i].defined()) CHECK(apart(operands[i].grad(), exact[i].grad()) <= 0.5001);
  }
}

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

TEST_CASE("products: batched or not, with factors, and with what is added broadcast") {
  at::manual_seed(4);
  for (const bool batched : {false, true}) {
    CAPTURE(batched);
    const at::Tensor a = batched ? low({2, 5, 7}) : low({5, 7}), b = batched ? low({2, 7, 3}) : low({7, 3});
    for (const auto& c : {at::Tensor(), low({3}), low({1, 3}), batched ? low({2, 5, 3}) : low({5, 3})}) {
      check_rounded_once(
          {a.clone(), b.clone(), c}, [](const auto& in) { return detail::emulated_product(present(in[2]), in[0], in[1], 0.75, 2.5); },
          [](const auto& in) {
            const at::Tensor product = at::matmul(in[0], in[1]);
            return in[2].defined() ? 0.75 * in[2] + 2.5 * product : 2.5 * product;
          });
    }
  }
}

TEST_CASE("convolutions with every option, and their gradients") {
  at::manual_seed(5);
  struct Row {
    std::vector<int64_t> x, w;
    detail::ConvolutionArgs args;
  };
  const std::vector<Row> rows = {
      {{2, 4, 7, 8}, {6, 2, 3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 3}, .output_padding = {0, 0}, .groups = 2}},
      {{2, 4, 5, 4}, {4, 3, 3, 3}, {.stride = {2, 3}, .padding = {1, 0}, .dilation = {2, 1}, .output_padding = {1, 2}, .transposed = true}},
      {{2, 4, 9}, {4, 1, 3}, {.stride = {1}, .padding = {1}, .dilation = {1}, .output_padding = {0}, .groups = 4}},
  };
  for (const auto& row : rows) {
    for (const bool biased : {false, true}) {
      CAPTURE(row.x.size());
      CAPTURE(row.args.transposed);
      CAPTURE(biased);
      const auto& args = row.args;
      check_rounded_once(
          {low(row.x), low(row.w), biased ? low({args.transposed ? row.w[1] : row.w[0]}) : at::Tensor()},
          [&](const auto& in) { return detail::emulated_convolution(in[0], in[1], present(in[2]), args); },
          [&](const auto& in) {
            return at::convolution(in[0], in[1], present(in[2]), args.stride, args.padding, args.dilation, args.transposed,
                                   args.output_padding, args.groups);
          });
    }
  }
}

TEST_CASE("attention with every option, and its gradients") {
  at::manual_seed(6);
  for (const auto& args : std::vector<detail::AttentionArgs>{
           {.causal = true, .scale = {}}, {.scale = 0.2}, {.dropout = 0.5, .scale = {}}, {.scale = {}, .grouped_heads = true}}) {
    for (const bool masked : {false, true}) {
      if (masked && args.causal) continue;  // libtorch refuses both together
      CAPTURE(args.dropout);
      CAPTURE(args.grouped_heads);
      CAPTURE(masked);
      const int64_t heads = args.grouped_heads ? 2 : 4;
      check_rounded_once(
          {low({2, 4, 5, 8}), low({2, heads, 6, 8}), low({2, heads, 6, 8}), masked ? low({5, 6}) : at::Tensor()},
          [&](const auto& in) { return detail::emulated_attention(in[0], in[1], in[2], present(in[3]), args); },
          [&](const auto& in) {
            return at::scaled_dot_product_attention(in[0], in[1], in[2], present(in[3]), args.dropout, args.causal, args.scale,
                                                    args.grouped_heads);
          });
    }
  }
}

TEST_CASE("attention gives the gradients that are required, and takes a mask of booleans") {
  at::manual_seed(7);
  const at::Tensor q = low({1, 2, 4, 8}), k = low({1, 2, 4, 8}).requires_grad_(), v = low({1, 2, 4, 8});
  const at::Tensor mask = at::ones({4, 4}, at::kBool).tril();
  const at::Tensor y = detail::emulated_attention(q, k, v, mask, {.scale = std::nullopt});
  CHECK(y.equal(at::scaled_dot_product_attention(wide(q), wide(k), wide(v), mask).to(at::kBFloat16)));
  testing::check_no_double_backward(y, k);
  y.sum().backward();
  CHECK(k.grad().defined());
  CHECK_FALSE(q.grad().defined());
}

TEST_CASE("each gradient is rounded once, and a double backward is an Error") {
  at::manual_seed(2);
  const at::Tensor a = low({5, 7}).requires_grad_(), b = low({7, 3}).requires_grad_(), up = low({5, 3});
  detail::emulated_product(std::nullopt, a, b).backward(up);
  CHECK(a.grad().equal(at::mm(wide(up), wide(b).t()).to(at::kBFloat16)));
  CHECK(b.grad().equal(at::mm(wide(a).t(), wide(up)).to(at::kBFloat16)));
  const at::Tensor y = detail::emulated_product(std::nullopt, a, b);
  testing::check_no_double_backward(y, a);
  const at::Tensor x = low({1, 2, 4}), w = low({2, 2, 3}).requires_grad_();
  const at::Tensor conv = detail::emulated_convolution(
      x, w, std::nullopt, {.stride = {1}, .padding = {0}, .dilation = {1}, .output_padding = {0}, .transposed = false});
  testing::check_no_double_backward(conv, w);
}

}  // namespace npu_train
