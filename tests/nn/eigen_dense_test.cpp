// Layers on tokens, and the loss, compared with double-precision references, forward and backward, in fp32 and fp64.
#include "testing.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include "npu_train/nn/layers.hpp"
#include "reference/dense.hpp"

using namespace npu_train;
using namespace npu_train::reference;

TEST_CASE("linear") {
  for (const auto& tolerance : kTolerances)
    for (const bool bias : {true, false}) {
      const auto d = tolerance.dtype;
      Linear layer(7, 5, bias);
      layer.to(d);
      {
        c10::AutoGradMode no_grad(false);
        layer.weight.copy_(values({5, 7}, 1, d));
        if (bias) layer.bias.copy_(values({5}, 2, d));
      }
      const at::Tensor x = leaf({2, 3, 7}, 3, d), dy = values({2, 3, 5}, 4, d);
      const at::Tensor y = layer.forward(x);
      y.backward(dy);
      CHECK(apart(y, linear(Array(x), Array(layer.weight), bias ? Array(layer.bias) : Array())) < tolerance.forward);
      const auto g = linear_backward(Array(dy), Array(x), Array(layer.weight));
      CHECK(apart(x.grad(), g.x) < tolerance.backward);
      CHECK(apart(layer.weight.grad(), g.w) < tolerance.backward);
      if (bias) CHECK(apart(layer.bias.grad(), g.b) < tolerance.backward);
    }
}

TEST_CASE("layer norm") {
  for (const auto& tolerance : kTolerances) {
    const auto d = tolerance.dtype;
    const at::Tensor x = leaf({2, 3, 24}, 1, d), w = leaf({24}, 2, d), b = leaf({24}, 3, d), dy = values({2, 3, 24}, 4, d);
    const at::Tensor y = at::layer_norm(x, {24}, w, b, 1e-6);
    y.backward(dy);
    LayerNorm ref{.weight = Array(w), .bias = Array(b)};
    CHECK(apart(y, ref.forward(Array(x))) < tolerance.forward);
    const auto g = ref.backward(Array(dy));
    CHECK(apart(x.grad(), g.x) < tolerance.backward);
    CHECK(apart(w.grad(), g.weight) < tolerance.backward);
    CHECK(apart(b.grad(), g.bias) < tolerance.backward);
  }
}

TEST_CASE("gelu, exact and tanh, and relu") {
  for (const auto& tolerance : kTolerances) {
    const auto d = tolerance.dtype;
    const at::Tensor dy = values({5, 40}, 2, d);
    for (const bool tanh : {false, true}) {
      const at::Tensor x = leaf({5, 40}, 1, d, 2.0);
      const at::Tensor y = at::gelu(x, tanh ? "tanh" : "none");
      y.backward(dy);
      const Gelu ref{.tanh = tanh};
      CHECK(apart(y, ref.forward(Array(x))) < tolerance.forward);
      CHECK(apart(x.grad(), ref.backward(Array(dy), Array(x))) < tolerance.backward);
    }
    const at::Tensor x = leaf({5, 40}, 1, d);
    const at::Tensor y = at::relu(x);
    y.backward(dy);
    CHECK(apart(y, relu(Array(x))) == 0);
    CHECK(apart(x.grad(), relu_backward(Array(dy), relu(Array(x)))) == 0);
  }
}

TEST_CASE("softmax attention, open and masked") {
  for (const auto& tolerance : kTolerances)
    for (const int masked : {0, 1, 2}) {
      const auto d = tolerance.dtype;
      // Two samples, three heads, seven tokens, eight features. Samples and heads are folded into the reference's batch.
      const at::Tensor q = leaf({2, 3, 7, 8}, 1, d), k = leaf({2, 3, 7, 8}, 2, d), v = leaf({2, 3, 7, 8}, 3, d),
                       dy = values({2, 3, 7, 8}, 4, d);
      const auto folded = [](const at::Tensor& t) { return Array(t.detach().reshape({6, 7, 8})); };
      Attention ref;
      std::optional<at::Tensor> mask;
      if (masked == 1) {
        mask = values({7, 7}, 5, d);
        ref.mask = Array(*mask).matrix();
      } else if (masked == 2) {
        ref.mask = Matrix::Zero(7, 7);
        for (int i = 0; i < 7; ++i)
          for (int j = i + 1; j < 7; ++j) ref.mask(i, j) = -INFINITY;
      }
      const at::Tensor y = at::scaled_dot_product_attention(q, k, v, mask, 0.0, masked == 2);
      y.backward(dy);
      CHECK(apart(y, ref.forward(folded(q), folded(k), folded(v))) < tolerance.forward);
      const auto g = ref.backward(folded(dy), folded(q), folded(k), folded(v));
      CHECK(apart(q.grad(), g.q) < tolerance.backward);
      CHECK(apart(k.grad(), g.k) < tolerance.backward);
      CHECK(apart(v.grad(), g.v) < tolerance.backward);
    }
}

TEST_CASE("cross entropy with label smoothing") {
  for (const auto& tolerance : kTolerances)
    for (const double smoothing : {0.0, 0.1, 0.7}) {
      const at::Tensor logits = leaf({4, 6}, 1, tolerance.dtype, 3.0);
      const std::vector<int64_t> labels = {5, 0, 2, 2};
      const at::Tensor loss = at::cross_entropy_loss(logits, at::tensor(labels), {}, at::Reduction::Mean, -100, smoothing);
      loss.backward();
      const CrossEntropy ref{.smoothing = smoothing};
      CHECK(loss.item<double>() == doctest::Approx(ref.forward(Array(logits), labels)).epsilon(tolerance.forward));
      CHECK(apart(logits.grad(), ref.backward(Array(logits), labels)) < tolerance.backward);
    }
}

TEST_CASE("class token and positions") {
  for (const auto& tolerance : kTolerances) {
    const auto d = tolerance.dtype;
    const at::Tensor token = leaf({1, 1, 4}, 1, d), positions = leaf({1, 6, 4}, 2, d), patches = leaf({3, 5, 4}, 3, d),
                     dy = values({3, 6, 4}, 4, d);
    const at::Tensor y = at::cat({token.expand({3, -1, -1}), patches}, 1) + positions;
    y.backward(dy);
    const TokenEmbedding ref{.token = Array(token), .positions = Array(positions)};
    CHECK(apart(y, ref.forward(Array(patches))) < tolerance.forward);
    const auto g = ref.backward(Array(dy));
    CHECK(apart(token.grad(), g.token) < tolerance.backward);
    CHECK(apart(positions.grad(), g.positions) < tolerance.backward);
    CHECK(apart(patches.grad(), g.patches) == 0);
  }
}
