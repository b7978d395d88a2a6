#include "testing.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules.h>

#include <array>
#include <thread>

#include "emulated_run.hpp"
#include "live_bytes.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

Array transposed(const Array& a) {
  Array out({a.size(1), a.size(0)});
  out.matrix() = a.matrix().transpose();
  return out;
}

Array product(const Array& a, const Array& b) {
  Array out({a.size(0), b.size(1)});
  out.matrix() = a.matrix() * b.matrix();
  return out;
}

Array batch_of(const Array& a, int64_t i) {
  Array out({a.size(1), a.size(2)});
  std::copy_n(a.v.begin() + i * a.size(1) * a.size(2), out.v.size(), out.v.begin());
  return out;
}

// Returns the kind of autograd node that made y.
std::string maker(const at::Tensor& y) { return y.grad_fn()->name(); }

}  // namespace

TEST_CASE("mm: inputs, result and gradients are rounded once each") {
  for (const auto dtype : kLow) {
    const at::Tensor a = leaf({17, 33}, 1, at::kFloat), b = leaf({33, 9}, 2, at::kFloat);
    const EmulatedRun r = run(dtype, {a, b}, [&] { return at::mm(a, b); });
    const Array la = low(a, dtype), lb = low(b, dtype);
    CHECK(spacings_apart(r.y, product(la, lb), dtype) <= kOnce);
    CHECK(spacings_apart(r.grads[0], product(r.dy, transposed(lb)), dtype) <= kOnce);
    CHECK(spacings_apart(r.grads[1], product(transposed(la), r.dy), dtype) <= kOnce);
  }
}

TEST_CASE("addmm and linear: the bias is added before the rounding") {
  for (const auto dtype : kLow) {
    const at::Tensor x = leaf({11, 40}, 3, at::kFloat), w = leaf({13, 40}, 4, at::kFloat), b = leaf({13}, 5, at::kFloat);
    const Array lx = low(x, dtype), lw = low(w, dtype), lb = low(b, dtype);
    const Array expected = reference::linear(lx, lw, lb);
    const auto check = [&](const EmulatedRun& r) {
      const auto g = reference::linear_backward(r.dy, lx, lw);
      CHECK(spacings_apart(r.y, expected, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[0], g.x, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[1], g.w, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[2], g.b, dtype) <= kOnce);
    };
    check(run(dtype, {x, w, b}, [&] { return at::linear(x, w, b); }));
    check(run(dtype, {x, w, b}, [&] { return at::addmm(b, x, w.t()); }));
  }
}

TEST_CASE("addmm scales in fp32, and the gradient of a broadcast matrix is its sum") {
  for (const auto dtype : kLow) {
    const at::Tensor c = leaf({7, 1}, 6, at::kFloat), a = leaf({7, 12}, 7, at::kFloat), b = leaf({12, 5}, 8, at::kFloat);
    const EmulatedRun r = run(dtype, {c, a, b}, [&] { return at::addmm(c, a, b, 0.3, -1.7); });
    const Array lc = low(c, dtype), la = low(a, dtype), lb = low(b, dtype);
    Array expected = product(la, lb), dc({7, 1}), da = product(r.dy, transposed(lb));
    for (int64_t i = 0; i < 7; ++i)
      for (int64_t j = 0; j < 5; ++j) {
        expected.matrix()(i, j) = 0.3 * lc.v[i] - 1.7 * expected.matrix()(i, j);
        dc.v[i] += 0.3 * r.dy.matrix()(i, j);
      }
    for (auto& v : da.v) v *= -1.7;
    CHECK(spacings_apart(r.y, expected, dtype) <= kOnce);
    CHECK(spacings_apart(r.grads[0], dc, dtype) <= kOnce);
    CHECK(spacings_apart(r.grads[1], da, dtype) <= kOnce);
  }
}

TEST_CASE("bmm, baddbmm, addbmm, matmul and einsum over batches") {
  for (const auto dtype : kLow) {
    const at::Tensor a = leaf({3, 6, 20}, 9, at::kFloat), b = leaf({3, 20, 4}, 10, at::kFloat), c = leaf({3, 6, 4}, 11, at::kFloat);
    const Array la = low(a, dtype), lb = low(b, dtype), lc = low(c, dtype);
    Array each({3, 6, 4}), with_c({3, 6, 4}), sum({6, 4});
    for (int64_t i = 0; i < 3; ++i) {
      const Array p = product(batch_of(la, i), batch_of(lb, i));
      for (size_t k = 0; k < p.v.size(); ++k) {
        each.v[i * p.v.size() + k] = p.v[k];
        with_c.v[i * p.v.size() + k] = p.v[k] + lc.v[i * p.v.size() + k];
        sum.v[k] += p.v[k];
      }
    }
    for (size_t k = 0; k < sum.v.size(); ++k) sum.v[k] += lc.v[k];
    const auto forward = [&](const Array& expected, auto fn) { CHECK(spacings_apart(run(dtype, {a, b}, fn).y, expected, dtype) <= kOnce); };
    forward(each, [&] { return at::bmm(a, b); });
    forward(each, [&] { return at::matmul(a, b); });
    forward(each, [&] { return at::einsum("bij,bjk->bik", {a, b}); });
    forward(with_c, [&] { return at::baddbmm(c, a, b); });
    forward(sum, [&] { return at::addbmm(c[0], a, b); });
    const EmulatedRun r = run(dtype, {a, b}, [&] { return at::bmm(a, b); });
    Array da({3, 6, 20});
    for (int64_t i = 0; i < 3; ++i) {
      const Array g = product(batch_of(r.dy, i), transposed(batch_of(lb, i)));
      std::copy(g.v.begin(), g.v.end(), da.v.begin() + i * 120);
    }
    CHECK(spacings_apart(r.grads[0], da, dtype) <= kOnce);
  }
}

TEST_CASE("operands without rows, columns or batches: libtorch's shapes, and zeros") {
  const auto sized = [](at::IntArrayRef sizes) { return at::ones(sizes).requires_grad_(); };
  const auto check_empty = [](const char* name, const std::vector<at::Tensor>& leaves, auto fn) {
    CAPTURE(std::string(name));
    const at::Tensor plain = fn();
    for (const auto dtype : kLow) {
      at::Tensor y;
      {
        const auto region = emulated(dtype);
        y = fn();
      }
      CHECK((y.scalar_type() == dtype));
      REQUIRE(y.sizes() == plain.sizes());
      CHECK(at::equal(y.to(at::kFloat), plain));
      const auto grads = torch::autograd::grad({y}, leaves, {at::ones_like(y)}, {}, false, /*allow_unused=*/true);
      for (size_t i = 0; i < leaves.size(); ++i) {
        CAPTURE(i);
        REQUIRE(grads[i].defined());
        CHECK(grads[i].sizes() == leaves[i].sizes());
      }
    }
  };
  for (const auto& [batch, rows, inner, columns] :
       std::vector<std::array<int64_t, 4>>{{2, 0, 4, 3}, {2, 5, 0, 3}, {2, 5, 4, 0}, {0, 5, 4, 3}}) {
    CAPTURE(batch);
    CAPTURE(rows);
    CAPTURE(inner);
    CAPTURE(columns);
    const at::Tensor a = sized({batch, rows, inner}), b = sized({batch, inner, columns}), c = sized({rows, columns}),
                     many = sized({batch, rows, columns});
    check_empty("addbmm", {a, b, c}, [&] { return at::addbmm(c, a, b); });
    check_empty("bmm", {a, b}, [&] { return at::bmm(a, b); });
    check_empty("baddbmm", {a, b, many}, [&] { return at::baddbmm(many, a, b); });
    check_empty("matmul", {a, b}, [&] { return at::matmul(a, b); });
    if (batch == 0) continue;
    const at::Tensor one = sized({rows, inner}), other = sized({inner, columns}), weight = sized({columns, inner}), bias = sized({columns}),
                     vector = sized({inner});
    check_empty("mm", {one, other}, [&] { return at::mm(one, other); });
    check_empty("addmm", {one, other, c}, [&] { return at::addmm(c, one, other); });
    check_empty("linear", {one, weight, bias}, [&] { return at::linear(one, weight, bias); });
    check_empty("linear of three dimensions", {a, weight, bias}, [&] { return at::linear(a, weight, bias); });
    check_empty("matrix and vector", {one, vector}, [&] { return at::matmul(one, vector); });
    check_empty("two vectors", {vector}, [&] { return at::matmul(vector, vector); });
  }
  const at::Tensor x = sized({0, 3, 8, 8}), w = sized({4, 3, 3, 3});
  check_empty("conv2d", {x, w}, [&] { return at::conv2d(x, w); });
  check_empty("conv1d", {x, w}, [&] { return at::conv1d(x.select(3, 0), w.select(3, 0)); });
  check_empty("conv_transpose2d", {x, w}, [&] { return at::conv_transpose2d(x, w.transpose(0, 1)); });
  const at::Tensor q = sized({0, 2, 5, 8}), none = sized({2, 2, 0, 8}), keys = sized({2, 2, 6, 8});
  check_empty("attention without a batch", {q}, [&] { return at::scaled_dot_product_attention(q, q, q); });
  check_empty("attention without queries", {none, keys}, [&] { return at::scaled_dot_product_attention(none, keys, keys); });
}

TEST_CASE("vectors: mv, dot and matmul of every rank") {
  for (const auto dtype : kLow) {
    const at::Tensor a = leaf({5, 8}, 12, at::kFloat), x = leaf({8}, 13, at::kFloat), t = leaf({2, 5, 8}, 14, at::kFloat);
    const Array la = low(a, dtype);
    Array lx = low(x, dtype), square({1, 1});
    lx.shape = {8, 1};
    square.matrix() = lx.matrix().transpose() * lx.matrix();
    CHECK(spacings_apart(run(dtype, {a, x}, [&] { return at::matmul(a, x); }).y, product(la, lx), dtype) <= kOnce);
    CHECK(spacings_apart(run(dtype, {x}, [&] { return at::matmul(x, x); }).y, square, dtype) <= kOnce);
    CHECK((run(dtype, {t, x}, [&] { return at::matmul(t, x); }).y.sizes() == at::IntArrayRef{2, 5}));
    CHECK((run(dtype, {t, a}, [&] { return at::matmul(t, a.t()); }).y.sizes() == at::IntArrayRef{2, 5, 5}));
    CHECK((run(dtype, {x, a}, [&] { return at::matmul(x, a.t()); }).y.sizes() == at::IntArrayRef{5}));
  }
}

TEST_CASE("fp16 overflows to inf, keeps subnormals and rounds ties to even") {
  const auto region = emulated(at::kHalf);
  const at::Tensor y = at::mm(at::tensor({256.F, 2.F}).view({2, 1}), at::tensor({256.F, 0x1p-20F, 1.F + 0x1p-10F}).view({1, 3}));
  CHECK(std::isinf(y[0][0].item<double>()));
  CHECK(y[1][1].item<double>() == 0x1p-19);
  CHECK(y[1][2].item<double>() == 2 * (1 + 0x1p-10));
  const at::Tensor sum = at::mm(at::ones({1, 2}), at::tensor({2048.F, 1.F}).view({2, 1}));  // 2049 is halfway between 2048 and 2050
  CHECK(sum.item<double>() == 2048.0);
}

TEST_CASE("other threads, native regions and disabled ones compute with libtorch's own kernels") {
  const at::Tensor a = leaf({4, 4}, 41, at::kFloat);
  const auto region = emulated(at::kBFloat16);
  CHECK(has(maker(at::mm(a, a)), "Product"));
  CHECK((emulated_dtype() == at::kBFloat16));
  std::thread([&] {
    CHECK_FALSE(emulated_dtype().has_value());
    CHECK((at::mm(a, a).scalar_type() == at::kFloat));
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const at::Tensor y = at::mm(a, a);
    CHECK((y.scalar_type() == at::kBFloat16));
    CHECK(has(maker(y), "MmBackward"));
    const at::Tensor x = leaf({1, 2, 4, 4}, 42, at::kFloat), w = leaf({3, 2, 1, 1}, 43, at::kFloat);
    CHECK((at::conv2d(x, w).scalar_type() == at::kBFloat16));
    CHECK((at::convolution(x, w, {}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1).scalar_type() == at::kFloat));
    CHECK(has(maker(at::conv2d(x, w)), "ConvolutionBackward"));
  }).join();
  {
    const Autocast native(kEmulator, at::kBFloat16, true, true, CpuLowPrecision::Native);
    CHECK(has(maker(at::mm(a, a)), "MmBackward"));
  }
  {
    const Autocast off(kEmulator, at::kBFloat16, false);
    CHECK((at::mm(a, a).scalar_type() == at::kFloat));
    CHECK_FALSE(emulated_dtype().has_value());
  }
  CHECK(has(maker(at::mm(a, a)), "Product"));
}

TEST_CASE("what the backward pass keeps is in low precision") {
  constexpr int64_t kN = 64;
  const at::Tensor a = leaf({kN, kN}, 51, at::kFloat), b = leaf({kN, kN}, 52, at::kFloat);
  const at::Tensor x = leaf({2, 8, 16, 16}, 53, at::kFloat), w = leaf({8, 8, 3, 3}, 54, at::kFloat);
  const at::Tensor q = leaf({2, 2, kN, 16}, 55, at::kFloat);
  const auto region = emulated(at::kBFloat16);
  at::mm(a, b), at::conv2d(x, w), at::scaled_dot_product_attention(q, q, q);  // makes the cached casts of the leaves
  const int64_t small = 512;                                                  // the size of strides and shapes
  CHECK(kept_by([&] { return at::mm(a, b); }) <= small);
  CHECK(kept_by([&] { return at::conv2d(x, w); }) <= small);
  CHECK(kept_by([&] { return at::scaled_dot_product_attention(q, q, q); }) <= small);
  const at::Tensor h = a * 1.5, g = x * 1.5;  // not leaves, so they are cast in the call and not cached
  CHECK(kept_by([&] { return at::mm(h, b); }) <= kN * kN * 2 + small);
  CHECK(kept_by([&] { return at::conv2d(g, w); }) <= g.numel() * 2 + small);
}

TEST_CASE("modules of torch::nn: their products are emulated in whatever form they call them") {
  using namespace torch::nn;
  at::manual_seed(5);
  const auto near_fp32 = [](auto module, std::vector<at::Tensor> in, auto call) {
    const at::Tensor exact = call(module, in);
    const auto region = emulated(at::kBFloat16);
    const at::Tensor y = call(module, in);
    CHECK((y.scalar_type() == at::kBFloat16));
    CHECK((y.to(at::kFloat) - exact).abs().max().item<double>() < 0.03 * exact.abs().max().item<double>());
    y.sum().backward();
    for (const auto& p : module->parameters()) CHECK((p.grad().defined() && p.grad().scalar_type() == at::kFloat));
  };
  const auto one = [](auto& m, auto& in) { return m->forward(in[0]); };
  near_fp32(Linear(8, 5), {at::rand({3, 8})}, one);
  near_fp32(Linear(8, 5), {at::rand({2, 3, 8})}, one);
  near_fp32(Linear(LinearOptions(8, 5).bias(false)), {at::rand({2, 3, 8})}, one);
  near_fp32(Conv1d(Conv1dOptions(4, 6, 3).padding(torch::kSame)), {at::rand({2, 4, 9})}, one);
  near_fp32(Conv2d(Conv2dOptions(4, 6, 3).padding(1).padding_mode(torch::kReflect)), {at::rand({2, 4, 9, 9})}, one);
  near_fp32(Conv2d(Conv2dOptions(4, 6, 5).padding(torch::kSame)), {at::rand({2, 4, 9, 9})}, one);
  near_fp32(Conv2d(Conv2dOptions(4, 6, 3)), {at::rand({4, 9, 9})}, one);
  near_fp32(Conv3d(Conv3dOptions(2, 3, 3)), {at::rand({1, 2, 5, 5, 5})}, one);
  near_fp32(ConvTranspose1d(ConvTranspose1dOptions(4, 6, 3).stride(2).output_padding(1)), {at::rand({2, 4, 9})}, one);
  near_fp32(ConvTranspose2d(ConvTranspose2dOptions(4, 6, 3)), {at::rand({2, 4, 5, 5})}, one);
  near_fp32(ConvTranspose3d(ConvTranspose3dOptions(2, 3, 2)), {at::rand({1, 2, 3, 3, 3})}, one);
  near_fp32(MultiheadAttention(8, 2), {at::rand({5, 3, 8})},
            [](auto& m, auto& in) { return std::get<0>(m->forward(in[0], in[0], in[0])); });
}

TEST_CASE("a weight that changes between regions is seen, and one that is frozen gets no gradient") {
  const at::Tensor w = leaf({4, 4}, 61, at::kFloat), x = values({2, 4}, 62, at::kFloat);
  const auto forward = [&] {
    const auto region = emulated(at::kBFloat16);
    return at::linear(x, w);
  };
  const at::Tensor before = forward();
  w.data().mul_(2);
  CHECK(at::equal(forward(), before * 2));
  w.requires_grad_(false);
  CHECK_FALSE(forward().requires_grad());
}

TEST_CASE("errors keep libtorch's messages, and a double backward is refused") {
  const auto region = emulated(at::kBFloat16);
  CHECK_THROWS_WITH_AS(at::mm(at::ones({2, 3}), at::ones({2, 3})), doctest::Contains("cannot be multiplied"), c10::Error);
  CHECK_THROWS_AS(at::conv2d(at::ones({1, 3, 4, 4}), at::ones({2, 4, 1, 1})), c10::Error);
  const at::Tensor a = leaf({3, 3}, 63, at::kFloat);
  const at::Tensor y = at::mm(a, a).sum();
  CHECK_THROWS_WITH(torch::autograd::grad({y}, {a}, {}, true, true), doctest::Contains("double backward"));
}

TEST_CASE("fp64 is unchanged") {
  const auto region = emulated(at::kBFloat16);
  CHECK((at::mm(at::ones({2, 2}, at::kDouble), at::ones({2, 2}, at::kDouble)).scalar_type() == at::kDouble));
}

TEST_CASE("names of cpu_low_precision") {
  CHECK((cpu_low_precision_of("auto") == CpuLowPrecision::Auto));
  CHECK((cpu_low_precision_of("emulated") == CpuLowPrecision::Emulated));
  CHECK(has(error_of([] { cpu_low_precision_of("fast"); }).what(), "auto, native, emulated"));
  CHECK(emulates(CpuLowPrecision::Emulated, at::kHalf));
  CHECK_FALSE(emulates(CpuLowPrecision::Native, at::kBFloat16));
}

TEST_CASE("a region of the host program inside ours, in another dtype, is libtorch's own") {
  namespace ac = at::autocast;
  const Autocast ours(Device{}, at::kBFloat16, true, true, CpuLowPrecision::Emulated);
  const at::Tensor a = at::rand({4, 4});
  CHECK((at::mm(a, a).scalar_type() == at::kBFloat16));
  ac::set_autocast_dtype(at::kCPU, at::kHalf);
  CHECK((at::mm(a, a).scalar_type() == at::kHalf));
  ac::set_autocast_dtype(at::kCPU, at::kBFloat16);
  CHECK((at::mm(a, a).scalar_type() == at::kBFloat16));
}
