// Complete blocks of the networks compared with double-precision references, forward and backward, in fp32 and fp64.
#include "testing.hpp"

#include <torch/nn/module.h>

#include "npu_train/models/resnet.hpp"
#include "npu_train/models/vit.hpp"
#include "npu_train/nn/module_state.hpp"
#include "reference/dense.hpp"
#include "reference/spatial.hpp"

using namespace npu_train;
using namespace npu_train::reference;

namespace {

// Returns a block's tolerance, for a dozen layers one after the other.
double through_block(double tolerance) { return 10 * tolerance; }

void fill(const Model& model) {
  c10::AutoGradMode no_grad(false);
  uint64_t seed = 100;
  for (const auto& p : parameters_of(*model.module)) {
    const double scale = p.value.dim() > 1 ? 1.0 / std::sqrt(static_cast<double>(p.value[0].numel())) : 0.2;
    p.value.copy_(values(p.value.sizes(), ++seed, p.value.scalar_type(), scale) +
                  (p.name.ends_with("weight") && p.value.dim() == 1 ? 1.0 : 0.0));
  }
}

// Parameters and gradients of one block, by the last parts of their names.
class BlockParameters {
 public:
  BlockParameters(const Model& model, const std::string& path) : parameters_(parameters_of(*model.module)), path_(path) {}
  Array operator()(const std::string& name) const { return Array(find(name)); }
  double gradient_apart(const std::string& name, const Array& expected) const { return apart(find(name).grad(), expected); }
  Array gradient(const std::string& name) const { return Array(find(name).grad()); }

 private:
  const at::Tensor& find(const std::string& name) const { return parameters_.find(path_ + "." + name)->value; }
  ParameterSet parameters_;
  std::string path_;
};

double largest(const Array& a) {
  double out = 0;
  for (const double x : a.v) out = std::max(out, std::abs(x));
  return out;
}

const Block& block_of(const Model& model, const std::string& name) {
  for (const auto& block : model.blocks)
    if (block.name == name) return block;
  FAIL("no block ", name);
  return model.blocks.front();
}

// A convolution, a norm and possibly a ReLU, with the values that backward needs.
struct ConvNorm {
  Conv conv;
  BatchNorm norm;
  Array w, x{};

  ConvNorm(const BlockParameters& p, const std::string& conv_name, const std::string& norm_name, Conv c)
      : conv(c),
        norm{.weight = p(norm_name + ".weight"), .bias = p(norm_name + ".bias"), .mean = {}, .var = {}},
        w(p(conv_name + ".weight")) {
    norm.mean = Array(norm.weight.shape);
    norm.var = Array(norm.weight.shape);
    std::fill(norm.var.v.begin(), norm.var.v.end(), 1.0);
  }
  Array forward(const Array& input) {
    x = input;
    return norm.forward(conv.forward(x, w));
  }
  struct Grads {
    Array x, w;
    BatchNorm::Grads norm;
  };
  Grads backward(const Array& dy) const {
    auto n = norm.backward(dy);
    auto c = conv.backward(n.x, x, w);
    return {c.x, c.w, n};
  }
};

void check_bottleneck(const Model& model, const Tolerance& tolerance, const std::string& path, int64_t channels, int64_t stride,
                      bool downsample) {
  CAPTURE(path);
  const BlockParameters p(model, path);
  const at::Tensor x = values({4, channels, 6, 6}, 1, tolerance.dtype).requires_grad_(true);
  const at::Tensor y = block_of(model, path).forward({}, x);
  const at::Tensor dy = values(y.sizes(), 2, tolerance.dtype);
  y.backward(dy);

  ConvNorm a(p, "conv1", "bn1", {}), b(p, "conv2", "bn2", {.stride = stride, .padding = 1}), c(p, "conv3", "bn3", {});
  const Array ya = relu(a.forward(Array(x))), yb = relu(b.forward(ya));
  Array sum = c.forward(yb);
  std::unique_ptr<ConvNorm> d;
  if (downsample) d = std::make_unique<ConvNorm>(p, "downsample.0", "downsample.1", Conv{.stride = stride});
  sum = sum + (downsample ? d->forward(Array(x)) : Array(x));
  const Array out = relu(sum);

  const Array dsum = relu_backward(Array(dy), out);
  const auto gc = c.backward(dsum);
  const auto gb = b.backward(relu_backward(gc.x, yb));
  const auto ga = a.backward(relu_backward(gb.x, ya));
  const double forward = through_block(tolerance.forward), backward = through_block(tolerance.backward);
  CHECK(apart(y, out) < forward);
  CHECK(p.gradient_apart("conv1.weight", ga.w) < backward);
  CHECK(p.gradient_apart("bn1.weight", ga.norm.weight) < backward);
  CHECK(p.gradient_apart("bn1.bias", ga.norm.bias) < backward);
  CHECK(p.gradient_apart("conv2.weight", gb.w) < backward);
  CHECK(p.gradient_apart("bn2.weight", gb.norm.weight) < backward);
  CHECK(p.gradient_apart("bn2.bias", gb.norm.bias) < backward);
  CHECK(p.gradient_apart("conv3.weight", gc.w) < backward);
  CHECK(p.gradient_apart("bn3.weight", gc.norm.weight) < backward);
  CHECK(p.gradient_apart("bn3.bias", gc.norm.bias) < backward);
  Array dx = ga.x;
  if (downsample) {
    const auto gd = d->backward(dsum);
    CHECK(p.gradient_apart("downsample.0.weight", gd.w) < backward);
    CHECK(p.gradient_apart("downsample.1.weight", gd.norm.weight) < backward);
    CHECK(p.gradient_apart("downsample.1.bias", gd.norm.bias) < backward);
    dx = dx + gd.x;
  } else {
    dx = dx + dsum;
  }
  CHECK(apart(x.grad(), dx) < backward);
}

// Converts [N, T, H * E] to [N * H, T, E], and back.
Array by_head(const Array& x, int64_t heads) {
  const int64_t n = x.size(0), tokens = x.size(1), e = x.size(2) / heads;
  Array y({n * heads, tokens, e});
  for (int64_t i = 0; i < n * tokens * heads * e; ++i) {
    const int64_t f = i % e, h = i / e % heads, t = i / (e * heads) % tokens, s = i / (e * heads * tokens);
    y.v[((s * heads + h) * tokens + t) * e + f] = x.v[i];
  }
  return y;
}
Array from_heads(const Array& y, int64_t heads) {
  const int64_t n = y.size(0) / heads, tokens = y.size(1), e = y.size(2);
  Array x({n, tokens, heads * e});
  for (int64_t i = 0; i < n * tokens * heads * e; ++i) {
    const int64_t f = i % e, h = i / e % heads, t = i / (e * heads) % tokens, s = i / (e * heads * tokens);
    x.v[i] = y.v[((s * heads + h) * tokens + t) * e + f];
  }
  return x;
}

// Returns part `part` of `parts` equal parts of the last dimension.
Array columns(const Array& x, int64_t part, int64_t parts) {
  auto shape = x.shape;
  const int64_t width = shape.back() /= parts;
  Array y(shape);
  y.matrix() = x.matrix().middleCols(part * width, width);
  return y;
}

void check_vit_block(const Tolerance& tolerance, const std::string& qkv, const std::string& gelu) {
  CAPTURE(qkv);
  VitOptions o;
  o.num_classes = 2, o.image_size = 8, o.patch_size = 4, o.dim = 12, o.depth = 1, o.heads = 3, o.mlp_dim = 20;
  o.qkv = qkv, o.gelu = gelu;
  const Model model = vit(o);
  model.module->to(tolerance.dtype);
  fill(model);
  const std::string path = "encoder.layers.encoder_layer_0";
  const BlockParameters p(model, path);
  const at::Tensor x = values({2, 5, 12}, 1, tolerance.dtype).requires_grad_(true), dy = values({2, 5, 12}, 2, tolerance.dtype);
  const at::Tensor y = block_of(model, path).forward({}, x);
  y.backward(dy);

  const bool split = qkv == "split";
  const std::string att = "self_attention.", parts[] = {"q_proj", "k_proj", "v_proj"};
  LayerNorm ln1{.weight = p("ln_1.weight"), .bias = p("ln_1.bias")}, ln2{.weight = p("ln_2.weight"), .bias = p("ln_2.bias")};
  const Array h1 = ln1.forward(Array(x));
  Array q[3];
  for (int i = 0; i < 3; ++i)
    q[i] = by_head(split ? linear(h1, p(att + parts[i] + ".weight"), p(att + parts[i] + ".bias"))
                         : columns(linear(h1, p(att + "in_proj_weight"), p(att + "in_proj_bias")), i, 3),
                   3);
  Attention attention;
  const Array heads = from_heads(attention.forward(q[0], q[1], q[2]), 3);
  const Array mid = Array(x) + linear(heads, p(att + "out_proj.weight"), p(att + "out_proj.bias"));
  const Array h2 = ln2.forward(mid), f1 = linear(h2, p("mlp.0.weight"), p("mlp.0.bias"));
  const Gelu act{.tanh = gelu == "tanh"};
  const Array a1 = act.forward(f1), out = mid + linear(a1, p("mlp.3.weight"), p("mlp.3.bias"));

  const auto g3 = linear_backward(Array(dy), a1, p("mlp.3.weight"));
  const auto g0 = linear_backward(act.backward(g3.x, f1), h2, p("mlp.0.weight"));
  const auto gn2 = ln2.backward(g0.x);
  const Array dmid = Array(dy) + gn2.x;
  const auto go = linear_backward(dmid, heads, p(att + "out_proj.weight"));
  const auto ga = attention.backward(by_head(go.x, 3), q[0], q[1], q[2]);
  const double forward = through_block(tolerance.forward), backward = through_block(tolerance.backward);
  const Array dq[] = {from_heads(ga.q, 3), from_heads(ga.k, 3), from_heads(ga.v, 3)};
  Array dh1(h1.shape);
  if (split) {
    Array bias[3];
    for (int i = 0; i < 3; ++i) {
      const auto g = linear_backward(dq[i], h1, p(att + parts[i] + ".weight"));
      CHECK(p.gradient_apart(att + parts[i] + ".weight", g.w) < backward);
      bias[i] = g.b;
      dh1 = dh1 + g.x;
    }
    CHECK(p.gradient_apart(att + "q_proj.bias", bias[0]) < backward);
    CHECK(p.gradient_apart(att + "v_proj.bias", bias[2]) < backward);
    // A vector that is added to every key shifts all scores of a row, which softmax ignores. So the gradient is 0, in the reference too.
    CHECK(largest(bias[1]) < 1e-12 * largest(bias[2]));
    CHECK(largest(p.gradient(att + "k_proj.bias")) < backward * largest(bias[2]));
  } else {
    Array dqkv({2, 5, 36});
    for (int i = 0; i < 3; ++i) dqkv.matrix().middleCols(12 * i, 12) = dq[i].matrix();
    const auto g = linear_backward(dqkv, h1, p(att + "in_proj_weight"));
    CHECK(p.gradient_apart(att + "in_proj_weight", g.w) < backward);
    CHECK(p.gradient_apart(att + "in_proj_bias", g.b) < backward);
    dh1 = g.x;
  }
  const auto gn1 = ln1.backward(dh1);
  CHECK(apart(y, out) < forward);
  CHECK(p.gradient_apart("mlp.3.weight", g3.w) < backward);
  CHECK(p.gradient_apart("mlp.3.bias", g3.b) < backward);
  CHECK(p.gradient_apart("mlp.0.weight", g0.w) < backward);
  CHECK(p.gradient_apart("mlp.0.bias", g0.b) < backward);
  CHECK(p.gradient_apart("ln_2.weight", gn2.weight) < backward);
  CHECK(p.gradient_apart("ln_2.bias", gn2.bias) < backward);
  CHECK(p.gradient_apart(att + "out_proj.weight", go.w) < backward);
  CHECK(p.gradient_apart(att + "out_proj.bias", go.b) < backward);
  CHECK(p.gradient_apart("ln_1.weight", gn1.weight) < backward);
  CHECK(p.gradient_apart("ln_1.bias", gn1.bias) < backward);
  CHECK(apart(x.grad(), dmid + gn1.x) < backward);
}

}  // namespace

TEST_CASE("a complete bottleneck: with and without a shortcut convolution, stride 1 and 2") {
  for (const auto& tolerance : kTolerances)
    for (const std::string fused : {"auto", "false"}) {
      CAPTURE(fused);
      const Model model = resnet(50, {.num_classes = 2, .zero_init_residual = false, .fused_kernels = fused});
      model.module->to(tolerance.dtype);
      fill(model);
      check_bottleneck(model, tolerance, "layer1.0", 64, 1, true);
      check_bottleneck(model, tolerance, "layer1.1", 256, 1, false);
      check_bottleneck(model, tolerance, "layer2.0", 256, 2, true);
    }
}

TEST_CASE("a complete ViT block: fused and split projections, exact and tanh GELU") {
  for (const auto& tolerance : kTolerances) {
    check_vit_block(tolerance, "fused", "exact");
    check_vit_block(tolerance, "split", "tanh");
  }
}
