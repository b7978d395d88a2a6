// Emulated convolutions and attention.
#include "testing.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "emulated_run.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

// Puts sizes of 1 in front, so that one reference serves 1, 2 and 3 dimensions.
std::vector<int64_t> in_3d(at::IntArrayRef sizes) {
  std::vector<int64_t> out = {sizes[0], sizes[1]};
  out.resize(static_cast<size_t>(7 - sizes.size()), 1);
  out.insert(out.end(), sizes.begin() + 2, sizes.end());
  return out;
}
std::vector<int64_t> padded(std::vector<int64_t> v, int64_t fill) {
  v.insert(v.begin(), 3 - v.size(), fill);
  return v;
}

// One product of y += x w, and its part in the gradients.
struct Products {
  const Array &x, &w, &dy;
  Array &y, &dx, &dw;
  void operator()(int64_t o, int64_t i, int64_t k) const {
    y.v[o] += x.v[i] * w.v[k];
    dx.v[i] += dy.v[o] * w.v[k];
    dw.v[k] += dy.v[o] * x.v[i];
  }
};

struct ConvCase {
  std::vector<int64_t> x, w, stride, padding, dilation;
  int64_t groups;
};

const std::vector<ConvCase> kConvs = {
    {{2, 4, 11}, {6, 4, 3}, {2}, {1}, {1}, 1},
    {{2, 4, 9, 8}, {6, 2, 3, 2}, {1, 2}, {1, 0}, {2, 1}, 2},
    {{2, 4, 7, 7}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},
    {{1, 3, 5, 6, 4}, {4, 3, 2, 3, 1}, {1, 2, 1}, {1, 1, 0}, {1, 1, 1}, 1},
};

}  // namespace

TEST_CASE("convolutions of one to three dimensions, strided, padded, dilated, in groups") {
  for (const auto dtype : kLow) {
    for (const auto& c : kConvs) {
      CAPTURE(c.x.size());
      const at::Tensor x = leaf(c.x, 21, at::kFloat), w = leaf(c.w, 22, at::kFloat), b = leaf({c.w[0]}, 23, at::kFloat);
      const EmulatedRun r = run(dtype, {x, w, b}, [&] {
        if (c.x.size() == 3) return at::conv1d(x, w, b, c.stride, c.padding, c.dilation, c.groups);
        if (c.x.size() == 4) return at::conv2d(x, w, b, c.stride, c.padding, c.dilation, c.groups);
        return at::conv3d(x, w, b, c.stride, c.padding, c.dilation, c.groups);
      });
      const reference::Conv3d conv{padded(c.stride, 1), padded(c.padding, 0), padded(c.dilation, 1), c.groups};
      const Array lx = low(x, dtype), lw = low(w, dtype), lb = low(b, dtype);
      Array y(r.y.sizes().vec()), dx(c.x), dw(c.w), db({c.w[0]});
      const auto inner = static_cast<int64_t>(y.v.size()) / (y.size(0) * y.size(1));
      for (size_t i = 0; i < y.v.size(); ++i) {
        const size_t channel = i / inner % y.size(1);
        y.v[i] = lb.v[channel];
        db.v[channel] += r.dy.v[i];
      }
      const Products add{lx, lw, r.dy, y, dx, dw};
      conv.for_products(in_3d(y.shape), in_3d(c.x), in_3d(c.w), [&](int64_t o, int64_t i, int64_t k) { add(o, i, k); });
      CHECK(spacings_apart(r.y, y, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[0], dx, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[1], dw, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[2], db, dtype) <= kOnce);
    }
  }
}

TEST_CASE("transposed convolutions are convolutions with the roles of input and output changed") {
  for (const auto dtype : kLow) {
    for (const auto& c : kConvs) {
      CAPTURE(c.x.size());
      // The input has the shape of the output of the case's convolution, so that the transposed convolution fits.
      const std::vector<int64_t> in = [&] {
        const at::Tensor x = at::zeros(c.x), w = at::zeros(c.w);
        return at::convolution(x, w, {}, c.stride, c.padding, c.dilation, false, std::vector<int64_t>(c.stride.size(), 0), c.groups)
            .sizes()
            .vec();
      }();
      const at::Tensor x = leaf(in, 24, at::kFloat), w = leaf(c.w, 25, at::kFloat);
      const std::vector<int64_t> none(c.stride.size(), 0);
      const EmulatedRun r = run(dtype, {x, w}, [&] {
        if (in.size() == 3) return at::conv_transpose1d(x, w, {}, c.stride, c.padding, none, c.groups, c.dilation);
        if (in.size() == 4) return at::conv_transpose2d(x, w, {}, c.stride, c.padding, none, c.groups, c.dilation);
        return at::conv_transpose3d(x, w, {}, c.stride, c.padding, none, c.groups, c.dilation);
      });
      const reference::Conv3d conv{padded(c.stride, 1), padded(c.padding, 0), padded(c.dilation, 1), c.groups};
      const Array lx = low(x, dtype), lw = low(w, dtype);
      Array y(r.y.sizes().vec()), dx(in), dw(c.w);
      const Products add{lx, lw, r.dy, y, dx, dw};
      conv.for_products(in_3d(in), in_3d(y.shape), in_3d(c.w), [&](int64_t i, int64_t o, int64_t k) { add(o, i, k); });
      CHECK(spacings_apart(r.y, y, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[0], dx, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[1], dw, dtype) <= kOnce);
    }
  }
}

TEST_CASE("attention: scores and softmax in fp32, the output rounded") {
  for (const auto dtype : kLow) {
    const at::Tensor q = leaf({2, 1, 7, 8}, 31, at::kFloat), k = leaf({2, 1, 7, 8}, 32, at::kFloat), v = leaf({2, 1, 7, 8}, 33, at::kFloat);
    for (const bool causal : {false, true}) {
      const EmulatedRun r = run(dtype, {q, k, v}, [&] { return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal); });
      const auto flat = [&](const at::Tensor& t) { return low(t.view({2, 7, 8}), dtype); };
      reference::Attention attention;
      if (causal) {
        attention.mask = reference::Matrix::Zero(7, 7);
        for (int i = 0; i < 7; ++i)
          for (int j = i + 1; j < 7; ++j) attention.mask(i, j) = -INFINITY;
      }
      Array dy = r.dy;
      dy.shape = {2, 7, 8};
      const Array y = attention.forward(flat(q), flat(k), flat(v));
      const auto g = attention.backward(dy, flat(q), flat(k), flat(v));
      CHECK(spacings_apart(r.y, y, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[0], g.q, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[1], g.k, dtype) <= kOnce);
      CHECK(spacings_apart(r.grads[2], g.v, dtype) <= kOnce);
    }
  }
}

TEST_CASE("attention with dropout drops in the backward pass what the forward dropped, and leaves the generator where it was") {
  const at::Tensor q = leaf({1, 2, 6, 4}, 34, at::kFloat), k = leaf({1, 2, 6, 4}, 35, at::kFloat), eye = at::eye(6).expand({1, 2, 6, 6});
  const at::Tensor v = eye.clone().requires_grad_(true);  // makes the output the matrix of dropped weights
  at::Tensor y;
  {
    const auto region = emulated(at::kBFloat16);
    at::manual_seed(3);
    y = at::scaled_dot_product_attention(q, k, v, {}, 0.5);
  }
  const at::Tensor next = at::rand({4});
  const auto grads = torch::autograd::grad({y}, {v}, {at::ones_like(y)});
  at::manual_seed(3);
  CHECK((y == 0).any().item<bool>());
  // dv of a loss sum(y) is the sum of each column of the weights. Both are rounded to bf16, by up to 2^-9.
  CHECK(at::allclose(grads[0].select(3, 0), y.to(at::kFloat).sum(2), 1e-2, 1e-2));
  {
    const auto region = emulated(at::kBFloat16);
    CHECK(at::equal(at::scaled_dot_product_attention(q, k, v, {}, 0.5), y));
  }
  CHECK(at::equal(at::rand({4}), next));
}

TEST_CASE("masks: bool and additive, with a gradient") {
  const at::Tensor q = leaf({1, 1, 5, 4}, 36, at::kFloat), mask = leaf({5, 5}, 37, at::kFloat);
  const EmulatedRun r = run(at::kBFloat16, {q, mask}, [&] { return at::scaled_dot_product_attention(q, q, q, mask); });
  const at::Tensor exact = q.detach().clone().requires_grad_(true), bias = mask.detach().clone().requires_grad_(true);
  const at::Tensor y = at::scaled_dot_product_attention(exact, exact, exact, bias);
  const auto g = torch::autograd::grad({y}, {exact, bias}, {values({1, 1, 5, 4}, 99, at::kFloat)});
  // q, the scores, the weights and the output are rounded to bf16 one after the other, each by up to 2^-9; in the backward pass, twice as
  // many values are.
  CHECK(at::allclose(r.y.to(at::kFloat), y, 0.02, 0.02));
  CHECK(at::allclose(r.grads[0], g[0], 0.03, 0.03));
  CHECK(at::allclose(r.grads[1], g[1], 0.03, 0.03));
  const at::Tensor keep = at::ones({5, 5}, at::kBool).tril();
  CHECK(at::equal(run(at::kHalf, {q}, [&] { return at::scaled_dot_product_attention(q, q, q, keep); }).y,
                  run(at::kHalf, {q}, [&] { return at::scaled_dot_product_attention(q, q, q, {}, 0.0, true); }).y));
}
