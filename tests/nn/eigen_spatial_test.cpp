// Layers for images compared with double-precision references, forward and backward, in fp32 and fp64.
#include "testing.hpp"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/module.h>

#include "npu_train/nn/batch_norm_act.hpp"
#include "npu_train/nn/layers.hpp"
#include "reference/dense.hpp"
#include "reference/spatial.hpp"

using namespace npu_train;
using namespace npu_train::reference;

namespace {

void check_conv(const Tolerance& tolerance, int64_t kernel, int64_t stride, int64_t padding, bool bias, at::MemoryFormat format) {
  CAPTURE(kernel);
  CAPTURE(stride);
  CAPTURE(padding);
  Conv2d conv({.in = 5, .out = 6, .kernel = kernel, .stride = stride, .padding = padding, .bias = bias});
  conv.to(tolerance.dtype);
  {
    c10::AutoGradMode no_grad(false);
    conv.weight.copy_(values(conv.weight.sizes(), 1, tolerance.dtype, 0.3));
    if (bias) conv.bias.copy_(values({6}, 2, tolerance.dtype));
  }
  conv.weight.set_data(conv.weight.contiguous(format));
  const at::Tensor x = values({2, 5, 9, 8}, 3, tolerance.dtype).contiguous(format).requires_grad_(true);
  const at::Tensor y = conv.forward(x);
  const at::Tensor dy = values(y.sizes(), 4, tolerance.dtype).contiguous(format);
  y.backward(dy);

  const Conv ref{.stride = stride, .padding = padding};
  const Array rx(x), rw(conv.weight), rb = bias ? Array(conv.bias) : Array();
  const auto g = ref.backward(Array(dy), rx, rw);
  CHECK(apart(y, ref.forward(rx, rw, rb)) < tolerance.forward);
  CHECK(apart(x.grad(), g.x) < tolerance.backward);
  CHECK(apart(conv.weight.grad(), g.w) < tolerance.backward);
  if (bias) CHECK(apart(conv.bias.grad(), g.b) < tolerance.backward);
}

}  // namespace

TEST_CASE("conv2d: kernels, strides, padding and layouts of the networks") {
  for (const auto& tolerance : kTolerances)
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      check_conv(tolerance, 1, 1, 0, false, format);
      check_conv(tolerance, 1, 2, 0, false, format);
      check_conv(tolerance, 3, 1, 1, false, format);
      check_conv(tolerance, 3, 2, 1, false, format);
      check_conv(tolerance, 7, 2, 3, false, format);
      check_conv(tolerance, 4, 4, 0, true, format);
    }
}

TEST_CASE("batch norm in training: output, gradients, running statistics") {
  for (const auto& tolerance : kTolerances) {
    const auto d = tolerance.dtype;
    const at::Tensor x = leaf({4, 3, 5, 6}, 1, d), w = leaf({3}, 2, d), b = leaf({3}, 3, d), dy = values({4, 3, 5, 6}, 4, d);
    at::Tensor mean = values({3}, 5, d), var = values({3}, 6, d).abs();
    BatchNorm ref{.weight = Array(w), .bias = Array(b), .mean = Array(mean), .var = Array(var)};
    const at::Tensor y = at::batch_norm(x, w, b, mean, var, true, 0.1, 1e-5, true);
    y.backward(dy);
    CHECK(apart(y, ref.forward(Array(x))) < tolerance.forward);
    const auto g = ref.backward(Array(dy));
    CHECK(apart(x.grad(), g.x) < tolerance.backward);
    CHECK(apart(w.grad(), g.weight) < tolerance.backward);
    CHECK(apart(b.grad(), g.bias) < tolerance.backward);
    CHECK(apart(mean, ref.mean) < tolerance.forward);
    CHECK(apart(var, ref.var) < tolerance.forward);
  }
}

TEST_CASE("batch norm in evaluation") {
  for (const auto& tolerance : kTolerances) {
    const auto d = tolerance.dtype;
    const at::Tensor x = leaf({4, 3, 5, 6}, 1, d), w = leaf({3}, 2, d), b = leaf({3}, 3, d), dy = values({4, 3, 5, 6}, 4, d);
    const at::Tensor mean = values({3}, 5, d), var = values({3}, 6, d).abs() + 0.5;
    BatchNorm ref{.weight = Array(w), .bias = Array(b), .mean = Array(mean), .var = Array(var), .training = false};
    const at::Tensor y = at::batch_norm(x, w, b, mean, var, false, 0.1, 1e-5, true);
    y.backward(dy);
    CHECK(apart(y, ref.forward(Array(x))) < tolerance.forward);
    const auto g = ref.backward(Array(dy));
    CHECK(apart(x.grad(), g.x) < tolerance.backward);
    CHECK(apart(w.grad(), g.weight) < tolerance.backward);
    CHECK(apart(b.grad(), g.bias) < tolerance.backward);
    CHECK(apart(mean, ref.mean) == 0);
  }
}

TEST_CASE("norm, shortcut and ReLU in one") {
  for (const auto& tolerance : kTolerances)
    for (const bool with_residual : {false, true}) {
      const auto d = tolerance.dtype;
      const at::Tensor x = leaf({4, 3, 5, 6}, 1, d), r = leaf({4, 3, 5, 6}, 7, d), w = leaf({3}, 2, d), b = leaf({3}, 3, d);
      const at::Tensor dy = values({4, 3, 5, 6}, 4, d);
      const BatchNormArgs args{.weight = w, .bias = b, .running_mean = values({3}, 5, d), .running_var = values({3}, 6, d).abs()};
      BatchNorm ref{.weight = Array(w), .bias = Array(b), .mean = Array(args.running_mean), .var = Array(args.running_var)};
      const at::Tensor y = batch_norm_act(x, args, with_residual ? r : at::Tensor(), true);
      y.backward(dy);
      const Array normed = ref.forward(Array(x)), out = relu(with_residual ? normed + Array(r) : normed);
      const Array dsum = relu_backward(Array(dy), out);
      const auto g = ref.backward(dsum);
      CHECK(apart(y, out) < tolerance.forward);
      CHECK(apart(x.grad(), g.x) < tolerance.backward);
      CHECK(apart(w.grad(), g.weight) < tolerance.backward);
      CHECK(apart(b.grad(), g.bias) < tolerance.backward);
      if (with_residual) CHECK(apart(r.grad(), dsum) == 0);
      CHECK(apart(args.running_var, ref.var) < tolerance.forward);
    }
}

TEST_CASE("max pooling and global average") {
  for (const auto& tolerance : kTolerances) {
    const at::Tensor x = leaf({2, 3, 9, 8}, 1, tolerance.dtype);
    const at::Tensor y = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    const at::Tensor dy = values(y.sizes(), 2, tolerance.dtype);
    y.backward(dy);
    MaxPool pool;
    CHECK(apart(y, pool.forward(Array(x))) == 0);
    CHECK(apart(x.grad(), pool.backward(Array(dy), x.sizes().vec())) < tolerance.backward);

    const at::Tensor z = leaf({2, 3, 9, 8}, 3, tolerance.dtype);
    const at::Tensor mean = z.mean({2, 3});
    const at::Tensor dmean = values(mean.sizes(), 4, tolerance.dtype);
    mean.backward(dmean);
    CHECK(apart(mean, global_average(Array(z))) < tolerance.forward);
    CHECK(apart(z.grad(), global_average_backward(Array(dmean), z.sizes().vec())) < tolerance.backward);
  }
}
