// Convolutions, normalisation, pooling, products, recurrent layers.
#include <ATen/ATen.h>

#include <limits>

#include "export/interpreter.hpp"

namespace npu_train::onnx {
namespace {

// Returns the first half of ONNX's pads; uneven padding is applied to `x` instead.
Ints even_pads(const NodeRun& n, at::Tensor& x, size_t dims, double value) {
  const auto pads = n.ints("pads", Ints(2 * dims, 0));
  const Ints begin(pads.begin(), pads.begin() + static_cast<ptrdiff_t>(dims)), end(pads.begin() + static_cast<ptrdiff_t>(dims), pads.end());
  if (begin == end) return begin;
  Ints from_last;
  for (size_t i = dims; i-- > 0;) from_last.push_back(begin[i]), from_last.push_back(end[i]);
  x = at::constant_pad_nd(x, from_last, value);
  return Ints(dims, 0);
}

size_t spatial_of(const NodeRun& n) { return static_cast<size_t>(n.x().dim() - 2); }

Results convolve_nodes(const NodeRun& n, bool transposed) {
  const auto dims = spatial_of(n);
  const Ints ones(dims, 1);
  at::Tensor x = n.x();
  const auto padding = even_pads(n, x, dims, 0);
  return {at::convolution(x, n.x(1), n.optional(2), n.ints("strides", ones), padding, n.ints("dilations", ones), transposed,
                          n.ints("output_padding", Ints(dims, 0)), n.integer("group", 1))};
}

at::Tensor by_channel(const at::Tensor& x, const at::Tensor& parameter) {
  Ints sizes(static_cast<size_t>(x.dim()), 1);
  sizes[1] = -1;
  return parameter.reshape(sizes);
}

Results batch_normalization(const NodeRun& n) {
  const auto of = [&](size_t i) { return by_channel(n.x(), n.x(i)); };
  return {(n.x() - of(3)) / at::sqrt(of(4) + n.number("epsilon", 1e-5)) * of(1) + of(2)};
}

at::Tensor standardised(const at::Tensor& x, const Ints& dims, double epsilon) {
  const at::Tensor centred = x - x.mean(dims, true);
  return centred / at::sqrt((centred * centred).mean(dims, true) + epsilon);
}

Results instance_normalization(const NodeRun& n) {
  Ints dims;
  for (int64_t d = 2; d < n.x().dim(); ++d) dims.push_back(d);
  return {standardised(n.x(), dims, n.number("epsilon", 1e-5)) * by_channel(n.x(), n.x(1)) + by_channel(n.x(), n.x(2))};
}

Results layer_normalization(const NodeRun& n) {
  const auto axis = n.integer("axis", -1);
  Ints dims;
  for (int64_t d = axis < 0 ? axis + n.x().dim() : axis; d < n.x().dim(); ++d) dims.push_back(d);
  at::Tensor y = standardised(n.x(), dims, n.number("epsilon", 1e-5)) * n.x(1);
  return {n.has(2) ? y + n.x(2) : y};
}

Results gemm(const NodeRun& n) {
  const at::Tensor a = n.integer("transA", 0) != 0 ? n.x(0).t() : n.x(0), b = n.integer("transB", 0) != 0 ? n.x(1).t() : n.x(1);
  const at::Tensor y = at::mm(a, b) * n.number("alpha", 1);
  return {n.has(2) ? y + n.x(2) * n.number("beta", 1) : y};
}

Results max_pool_nodes(const NodeRun& n) {
  const auto dims = spatial_of(n);
  const Ints ones(dims, 1), kernel = n.ints("kernel_shape"), strides = n.ints("strides", ones), dilations = n.ints("dilations", ones);
  at::Tensor x = n.x();
  const auto padding = even_pads(n, x, dims, -std::numeric_limits<double>::infinity());
  const bool up = n.integer("ceil_mode", 0) != 0;
  if (dims == 1) return {at::max_pool1d(x, kernel, strides, padding, dilations, up)};
  if (dims == 2) return {at::max_pool2d(x, kernel, strides, padding, dilations, up)};
  return {at::max_pool3d(x, kernel, strides, padding, dilations, up)};
}

Results average_pool_nodes(const NodeRun& n) {
  const auto dims = spatial_of(n);
  const Ints kernel = n.ints("kernel_shape"), strides = n.ints("strides", Ints(dims, 1));
  at::Tensor x = n.x();
  const auto padding = even_pads(n, x, dims, 0);
  const bool up = n.integer("ceil_mode", 0) != 0, counts = n.integer("count_include_pad", 0) != 0;
  if (dims == 1) return {at::avg_pool1d(x, kernel, strides, padding, up, counts)};
  if (dims == 2) return {at::avg_pool2d(x, kernel, strides, padding, up, counts)};
  return {at::avg_pool3d(x, kernel, strides, padding, up, counts)};
}

Results global_average_pool(const NodeRun& n) {
  Ints dims;
  for (int64_t d = 2; d < n.x().dim(); ++d) dims.push_back(d);
  return {n.x().mean(dims, true)};
}

Results resize_nodes(const NodeRun& n) {
  Ints sizes;
  if (n.has(2)) {
    for (int64_t d = 2; d < n.x().dim(); ++d)
      sizes.push_back(static_cast<int64_t>(static_cast<double>(n.x().size(d)) * n.x(2)[d].item<double>()));
  } else {
    sizes = n.elements(3);
    sizes.erase(sizes.begin(), sizes.begin() + 2);
  }
  const auto coordinates = n.text("coordinate_transformation_mode", "half_pixel");
  if (n.text("mode", "nearest") == "linear") return {at::upsample_bilinear2d(n.x(), sizes, coordinates == "align_corners")};
  if (coordinates != "asymmetric" || n.text("nearest_mode", "round_prefer_floor") != "floor") n.refuse("has another form of nearest");
  return {sizes.size() == 1 ? at::upsample_nearest1d(n.x(), sizes) : at::upsample_nearest2d(n.x(), sizes)};
}

// Weights of a cell for x and h; each product is [batch, gates * hidden].
struct CellWeights {
  at::Tensor w, r, wb, rb;
};

CellWeights cell_weights(const NodeRun& n, int64_t direction) {
  CellWeights out{.w = n.x(1)[direction], .r = n.x(2)[direction], .wb = {}, .rb = {}};
  const auto rows = out.w.size(0);
  const at::Tensor bias = n.has(3) ? n.x(3)[direction] : at::zeros({2 * rows}, n.x().options());
  out.wb = bias.slice(0, 0, rows), out.rb = bias.slice(0, rows);
  return out;
}

// Y of one direction, [steps, batch, hidden], and the states after the last step.
struct Unrolled {
  at::Tensor y, h, c;
};

Unrolled unroll(const NodeRun& n, int64_t direction, bool backward, bool lstm) {
  const auto weights = cell_weights(n, direction);
  const auto steps = n.x().size(0);
  at::Tensor h = n.x(5)[direction], c = lstm ? n.x(6)[direction] : at::Tensor();
  std::vector<at::Tensor> y(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps; ++i) {
    const auto step = backward ? steps - 1 - i : i;
    const auto of_x = at::addmm(weights.wb, n.x()[step], weights.w.t()), of_h = at::addmm(weights.rb, h, weights.r.t());
    if (lstm) {
      const auto gates = (of_x + of_h).chunk(4, 1);  // order of the gates
      c = at::sigmoid(gates[2]) * c + at::sigmoid(gates[0]) * at::tanh(gates[3]);
      h = at::sigmoid(gates[1]) * at::tanh(c);
    } else {
      const auto x = of_x.chunk(3, 1), r = of_h.chunk(3, 1);  // order of the gates
      const at::Tensor z = at::sigmoid(x[0] + r[0]), candidate = at::tanh(x[2] + at::sigmoid(x[1] + r[1]) * r[2]);
      h = (1 - z) * candidate + z * h;
    }
    y[static_cast<size_t>(step)] = h;
  }
  return {at::stack(y), h, c};
}

Results recurrent(const NodeRun& n, bool lstm) {
  const bool both = n.text("direction", "forward") == "bidirectional";
  if (!lstm && n.integer("linear_before_reset", 0) != 1) n.refuse("has linear_before_reset 0");
  std::vector<at::Tensor> y, h, c;
  for (int64_t d = 0; d < (both ? 2 : 1); ++d) {
    const auto one = unroll(n, d, d == 1, lstm);
    y.push_back(one.y), h.push_back(one.h), c.push_back(one.c);
  }
  Results out{at::stack(y, 1), at::stack(h)};
  if (lstm) out.push_back(at::stack(c));
  return out;
}

}  // namespace

const NodeTable& layer_nodes() {
  static const NodeTable table{
      {"Conv", [](const NodeRun& n) { return convolve_nodes(n, false); }},
      {"ConvTranspose", [](const NodeRun& n) { return convolve_nodes(n, true); }},
      {"BatchNormalization", batch_normalization},
      {"InstanceNormalization", instance_normalization},
      {"LayerNormalization", layer_normalization},
      {"Gemm", gemm},
      {"MatMul", [](const NodeRun& n) { return Results{at::matmul(n.x(), n.x(1))}; }},
      {"Softmax", [](const NodeRun& n) { return Results{at::softmax(n.x(), n.integer("axis", -1))}; }},
      {"LogSoftmax", [](const NodeRun& n) { return Results{at::log_softmax(n.x(), n.integer("axis", -1))}; }},
      {"MaxPool", max_pool_nodes},
      {"AveragePool", average_pool_nodes},
      {"GlobalAveragePool", global_average_pool},
      {"Resize", resize_nodes},
      {"DepthToSpace", [](const NodeRun& n) { return Results{at::pixel_shuffle(n.x(), n.integer("blocksize", 1))}; }},
      {"LSTM", [](const NodeRun& n) { return recurrent(n, true); }},
      {"GRU", [](const NodeRun& n) { return recurrent(n, false); }},
  };
  return table;
}

}  // namespace npu_train::onnx
