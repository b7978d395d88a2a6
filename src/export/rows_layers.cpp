// Convolutions, normalisation, products, embeddings, attention, dropout.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numeric>

#include "export/rows.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::onnx {
namespace {

constexpr const char* kEvalHint = "call eval() on the module; a layer that passes training=true itself needs another form for inference";

Ints both_sides(const Ints& padding) {
  Ints out = padding;
  out.insert(out.end(), padding.begin(), padding.end());
  return out;
}

// Returns the pads of padding="same" with stride 1. If the total padding is odd, the end gets the larger part, as in libtorch.
Ints same_padding(const Ints& kernel, const Ints& dilation) {
  Ints out(2 * kernel.size());
  for (size_t d = 0; d < kernel.size(); ++d) {
    const auto total = dilation[d] * (kernel[d] - 1);
    out[d] = total / 2;
    out[kernel.size() + d] = total - total / 2;
  }
  return out;
}

void must_be_batched(Call& c) {
  if (c.rank(0) != c.rank(1)) c.to.refuse("has an input without a batch", "give it a batch of one: x.unsqueeze(0)");
}

// Positions of these arguments.
struct ConvOptions {
  size_t stride, padding, dilation, groups;
};

void convolve(Call& c, const ConvOptions& at) {
  must_be_batched(c);
  const auto kernel = c.tensor(1).sizes().slice(2).vec();
  const auto dims = kernel.size();
  const auto dilation = c.ints(at.dilation, dims);
  Ints pads(2 * dims, 0);
  if (c.op().args[at.padding].isString()) {
    if (c.text(at.padding) == "same") pads = same_padding(kernel, dilation);
  } else {
    pads = both_sides(c.ints(at.padding, dims));
  }
  c.give(c.to.node("Conv", {c.input(0), c.input(1), c.input(2)},
                   {{"kernel_shape", kernel},
                    {"strides", c.ints(at.stride, dims)},
                    {"pads", pads},
                    {"dilations", dilation},
                    {"group", c.integer(at.groups)}}));
}

void convolve_transposed(Call& c, const ConvOptions& at, size_t output_padding) {
  must_be_batched(c);
  const auto kernel = c.tensor(1).sizes().slice(2).vec();
  const auto dims = kernel.size();
  c.give(c.to.node("ConvTranspose", {c.input(0), c.input(1), c.input(2)},
                   {{"kernel_shape", kernel},
                    {"strides", c.ints(at.stride, dims)},
                    {"pads", both_sides(c.ints(at.padding, dims))},
                    {"output_padding", c.ints(output_padding, dims)},
                    {"dilations", c.ints(at.dilation, dims)},
                    {"group", c.integer(at.groups)}}));
}

void conv(Call& c) { convolve(c, {.stride = 3, .padding = 4, .dilation = 5, .groups = 6}); }
void conv_transpose(Call& c) { convolve_transposed(c, {.stride = 3, .padding = 4, .dilation = 7, .groups = 6}, 5); }
void convolution(Call& c) {
  const ConvOptions at{.stride = 3, .padding = 4, .dilation = 5, .groups = 8};
  c.flag(6) ? convolve_transposed(c, at, 7) : convolve(c, at);
}

// Returns argument `i`, or a constant of `size` elements if it is absent.
std::string or_filled(Call& c, size_t i, int64_t size, double value) {
  return c.has(i) ? c.input(i) : c.to.constant(value == 0 ? "zeros" : "ones", at::full({size}, value, c.tensor(0).options()));
}

void normalise_by_statistics(Call& c, size_t weight, size_t eps) {
  const auto channels = c.tensor(0).size(1);
  c.give(c.to.node(
      "BatchNormalization",
      {c.input(0), or_filled(c, weight, channels, 1), or_filled(c, weight + 1, channels, 0), c.input(weight + 2), c.input(weight + 3)},
      {{"epsilon", c.number(eps)}}));
}

void batch_norm(Call& c) {
  if (c.flag(5)) c.to.refuse("is in training mode", kEvalHint);
  normalise_by_statistics(c, 1, 7);
}

void instance_norm(Call& c) {
  if (!c.flag(5)) return normalise_by_statistics(c, 1, 7);
  const auto channels = c.tensor(0).size(1);
  c.give(c.to.node("InstanceNormalization", {c.input(0), or_filled(c, 1, channels, 1), or_filled(c, 2, channels, 0)},
                   {{"epsilon", c.number(7)}}));
}

void group_norm(Call& c) {
  const auto groups = c.integer(1), channels = c.tensor(0).size(1);
  std::string y = c.to.node("Reshape", {c.input(0), c.to.ints({0, groups, -1})});
  y = c.to.node("InstanceNormalization",
                {y, c.to.constant("ones", at::ones({groups}, c.tensor(0).options())),
                 c.to.constant("zeros", at::zeros({groups}, c.tensor(0).options()))},
                {{"epsilon", c.number(4)}});
  y = c.to.reshape(y, c.sizes_of(0));
  Ints by_channel(static_cast<size_t>(c.rank() - 1), 1);
  by_channel[0] = channels;
  const auto spread = [&](size_t i) { return c.to.node("Reshape", {c.input(i), c.to.ints(by_channel)}); };
  if (c.has(2)) y = c.to.node("Mul", {y, spread(2)});
  if (c.has(3)) y = c.to.node("Add", {y, spread(3)});
  c.give(y);
}

void layer_norm(Call& c) {
  const auto shape = c.ints(1);
  const auto weight = c.has(2) ? c.input(2) : c.to.constant("ones", at::ones(shape, c.tensor(0).options()));
  c.give(c.to.node("LayerNormalization", {c.input(0), weight, c.input(3)},
                   {{"axis", -static_cast<int64_t>(shape.size())}, {"epsilon", c.number(4)}}));
}

// Composes the layer norm from other operators, for opsets below 17, which lack LayerNormalization.
void layer_norm_of_parts(Call& c) {
  const Lowering::Fp32Nodes fp32(c.to);
  const auto count = static_cast<int64_t>(c.ints(1).size());
  Ints axes(static_cast<size_t>(count));
  std::iota(axes.begin(), axes.end(), -count);
  const auto mean = [&](const std::string& x) { return c.to.node("ReduceMean", {x}, {{"axes", axes}, {"keepdims", int64_t{1}}}); };
  const auto centred = c.to.node("Sub", {c.input(0), mean(c.input(0))});
  const auto variance = mean(c.to.node("Mul", {centred, centred}));
  std::string y = c.to.node("Div", {centred, c.to.node("Sqrt", {c.to.node("Add", {variance, c.to.number(c.number(4), c.type())})})});
  if (c.has(2)) y = c.to.node("Mul", {y, c.input(2)});
  if (c.has(3)) y = c.to.node("Add", {y, c.input(3)});
  c.give(y);
}

void linear(Call& c) {
  if (c.rank() == 2) return c.give(c.to.node("Gemm", {c.input(0), c.input(1), c.input(2)}, {{"transB", int64_t{1}}}));
  const auto y = c.to.node("MatMul", {c.input(0), c.to.node("Transpose", {c.input(1)}, {{"perm", Ints{1, 0}}})});
  c.give(c.has(2) ? c.to.node("Add", {y, c.input(2)}) : y);
}

void addmm(Call& c) { c.give(c.to.node("Gemm", {c.input(1), c.input(2), c.input(0)}, {{"beta", c.number(3)}, {"alpha", c.number(4)}})); }

void baddbmm(Call& c) {
  const auto times = [&](const std::string& x, size_t i) {
    return c.number(i) == 1 ? x : c.to.node("Mul", {x, c.to.number(c.number(i), c.type())});
  };
  const auto product = times(c.to.node("MatMul", {c.input(1), c.input(2)}), 4);
  c.give(c.number(3) == 0 ? product : c.to.node("Add", {times(c.input(0), 3), product}));
}

void matmul(Call& c) { c.give(c.to.node("MatMul", {c.input(0), c.input(1)})); }

void embedding(Call& c) { c.give(c.to.node("Gather", {c.input(0), c.input(1)}, {{"axis", int64_t{0}}})); }

// Returns a mask which, added to the scores, hides later keys from each query.
std::string causal_mask(Call& c) {
  const auto queries = c.sizes_of(0), keys = c.sizes_of(1);
  const auto rows = queries[queries.size() - 2], columns = keys[keys.size() - 2];
  const auto options = c.tensor(0).options();
  if (rows.fixed() && columns.fixed())
    return c.to.constant("causal_mask", at::full({rows.factor, columns.factor}, -INFINITY, options).triu(1));
  const auto full = c.to.node("Expand", {c.to.number(-INFINITY, c.type()), c.to.shape({rows, columns})});
  return c.to.node("Trilu", {full, c.to.constant("one", at::ones({}, at::kLong))}, {{"upper", int64_t{1}}});
}

void attention(Call& c) {
  if (c.number(4) != 0) c.to.refuse("drops weights with probability " + shortest(c.number(4)), kEvalHint);
  if (c.flag(7)) c.to.refuse("has enable_gqa", "repeat the heads of keys and values (repeat_interleave) before");
  const double scale = c.has(6) ? c.number(6) : 1 / std::sqrt(static_cast<double>(c.tensor(0).size(-1)));
  Ints perm(static_cast<size_t>(c.rank(1)));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  const auto scaled = c.to.node("Mul", {c.input(0), c.to.number(scale, c.type())});
  std::string scores = c.to.node("MatMul", {scaled, c.to.node("Transpose", {c.input(1)}, {{"perm", perm}})});
  if (c.flag(5)) scores = c.to.node("Add", {scores, causal_mask(c)});
  if (c.has(3) && c.type(3) == at::kBool)
    scores = c.to.node("Where", {c.input(3), scores, c.to.number(-INFINITY, c.type())});
  else if (c.has(3))
    scores = c.to.node("Add", {scores, c.operand(3, c.type())});
  c.give(c.to.node("MatMul", {c.to.node("Softmax", {scores}, {{"axis", int64_t{-1}}}), c.input(2)}));
}

void dropout(Call& c) {
  if (c.flag(2)) c.to.refuse("is in training mode", kEvalHint);
  c.give(c.input(0));
}

}  // namespace

const std::vector<Row>& layer_rows() {
  static const std::vector<Row> rows{
      {"conv1d", 15, 20, conv},
      {"conv2d", 15, 20, conv},
      {"conv3d", 15, 20, conv},
      {"convolution", 15, 20, convolution},
      {"conv_transpose1d", 15, 20, conv_transpose},
      {"conv_transpose2d", 15, 20, conv_transpose},
      {"conv_transpose3d", 15, 20, conv_transpose},
      {"batch_norm", 15, 20, batch_norm},
      {"instance_norm", 15, 20, instance_norm},
      {"group_norm", 15, 20, group_norm},
      {"layer_norm", 15, 16, layer_norm_of_parts},
      {"layer_norm", 17, 20, layer_norm},
      {"linear", 15, 20, linear},
      {"addmm", 15, 20, addmm},
      {"baddbmm", 15, 20, baddbmm},
      {"matmul", 15, 20, matmul},
      {"mm", 15, 20, matmul},
      {"bmm", 15, 20, matmul},
      {"mv", 15, 20, matmul},
      {"embedding", 15, 20, embedding},
      {"scaled_dot_product_attention", 15, 20, attention},
      {"dropout", 15, 20, dropout},
      {"feature_dropout", 15, 20, dropout},
      {"alpha_dropout", 15, 20, dropout},
      {"feature_alpha_dropout", 15, 20, dropout},
  };
  return rows;
}

}  // namespace npu_train::onnx
