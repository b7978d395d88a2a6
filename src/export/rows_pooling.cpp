// Pooling and resizing.
#include <ATen/ops/tensor.h>

#include "export/rows.hpp"

namespace npu_train::onnx {
namespace {

size_t spatial(Call& c, size_t dims) {
  if (static_cast<size_t>(c.rank()) != dims + 2) c.to.refuse("has an input without a batch", "give it a batch of one: x.unsqueeze(0)");
  return dims;
}

Attributes pool_attributes(Call& c, size_t dims) {
  const auto kernel = c.ints(1, dims), stride = c.ints(2, dims), padding = c.ints(3, dims);
  Ints pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return {{"kernel_shape", kernel}, {"strides", stride.empty() ? kernel : stride}, {"pads", pads}};
}

void max_pool_of(Call& c, size_t dims) {
  auto attributes = pool_attributes(c, spatial(c, dims));
  attributes.emplace_back("dilations", c.ints(4, dims));
  attributes.emplace_back("ceil_mode", static_cast<int64_t>(c.flag(5)));
  c.give(c.to.node("MaxPool", {c.input(0)}, attributes));
}

void average_pool_of(Call& c, size_t dims) {
  if (c.has(6)) c.to.refuse("has divisor_override", "multiply the result of the pooling instead");
  auto attributes = pool_attributes(c, spatial(c, dims));
  attributes.emplace_back("ceil_mode", static_cast<int64_t>(c.flag(4)));
  attributes.emplace_back("count_include_pad", static_cast<int64_t>(c.flag(5)));
  c.give(c.to.node("AveragePool", {c.input(0)}, attributes));
}

void adaptive_average_pool_of(Call& c, size_t dims) {
  spatial(c, dims);
  const auto wanted = c.ints(1, dims);
  if (wanted == Ints(dims, 1)) return c.give(c.to.node("GlobalAveragePool", {c.input(0)}));
  Ints kernel;
  for (size_t d = 0; d < dims; ++d) {
    const auto size = c.sizes_of(0)[2 + d];
    if (!size.fixed() || size.factor % wanted[d] != 0)
      c.to.refuse("pools to a size that does not divide that of its input", "use a size that divides it, or 1");
    kernel.push_back(size.factor / wanted[d]);
  }
  c.give(c.to.node("AveragePool", {c.input(0)}, {{"kernel_shape", kernel}, {"strides", kernel}}));
}

void resize(Call& c, const std::string& mode, const std::string& coordinates) {
  Attributes attributes{{"mode", mode}, {"coordinate_transformation_mode", coordinates}};
  if (mode == "nearest") attributes.emplace_back("nearest_mode", std::string("floor"));
  bool whole = true;  // the factor is the same in every record
  std::vector<float> scales;
  for (int64_t d = 0; d < c.rank(); ++d) {
    const auto factor = c.result().size(d) / c.tensor(0).size(d);
    for (size_t r = 0; r < c.to.records().count(); ++r)
      whole = whole && c.to.records().tensor(c.op().gives[0], r).size(d) == factor * c.to.records().tensor(c.op().reads[0], r).size(d);
    scales.push_back(static_cast<float>(factor));
  }
  if (whole) return c.give(c.to.node("Resize", {c.input(0), "", c.to.constant("scales", at::tensor(scales))}, attributes));
  c.give(c.to.node("Resize", {c.input(0), "", "", c.to.shape(c.result_sizes())}, attributes));
}

void nearest(Call& c) { resize(c, "nearest", "asymmetric"); }
void bilinear(Call& c) { resize(c, "linear", c.flag(2) ? "align_corners" : "half_pixel"); }

void pixel_shuffle(Call& c) {
  if (c.rank() != 4) c.to.refuse("has an input without a batch", "give it a batch of one: x.unsqueeze(0)");
  c.give(c.to.node("DepthToSpace", {c.input(0)}, {{"blocksize", c.integer(1)}, {"mode", std::string("CRD")}}));
}

}  // namespace

const std::vector<Row>& pooling_rows() {
  static const std::vector<Row> rows{
      {"max_pool1d", 15, 20, [](Call& c) { max_pool_of(c, 1); }},
      {"max_pool2d", 15, 20, [](Call& c) { max_pool_of(c, 2); }},
      {"max_pool3d", 15, 20, [](Call& c) { max_pool_of(c, 3); }},
      {"avg_pool1d", 15, 20, [](Call& c) { average_pool_of(c, 1); }},
      {"avg_pool2d", 15, 20, [](Call& c) { average_pool_of(c, 2); }},
      {"avg_pool3d", 15, 20, [](Call& c) { average_pool_of(c, 3); }},
      {"adaptive_avg_pool1d", 15, 20, [](Call& c) { adaptive_average_pool_of(c, 1); }},
      {"adaptive_avg_pool2d", 15, 20, [](Call& c) { adaptive_average_pool_of(c, 2); }},
      {"adaptive_avg_pool3d", 15, 20, [](Call& c) { adaptive_average_pool_of(c, 3); }},
      {"upsample_nearest1d", 15, 20, nearest, true},
      {"upsample_nearest2d", 15, 20, nearest, true},
      {"upsample_bilinear2d", 15, 20, bilinear, true},
      {"pixel_shuffle", 15, 20, pixel_shuffle},
  };
  return rows;
}

}  // namespace npu_train::onnx
