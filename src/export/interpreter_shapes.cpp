// Shapes, slices and reductions.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "export/interpreter.hpp"

namespace npu_train::onnx {
namespace {

Results reshape_to(const NodeRun& n) {
  Ints sizes = n.elements(1);
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0) sizes[i] = n.x().size(static_cast<int64_t>(i));
  return {n.x().reshape(sizes)};
}

// Broadcasts both ways: a requested size of 1 keeps the input's size.
Results expand_to(const NodeRun& n) {
  const auto parts = at::broadcast_tensors({n.x(), at::empty(n.elements(1), n.x().options())});
  return {parts[0].contiguous()};
}

// Indices may be negative.
Results gather_along(const NodeRun& n) {
  const auto axis = n.integer("axis", 0);
  const at::Tensor x = n.x(), index = n.x(1).to(at::kLong);
  const auto size = x.size(axis);
  const at::Tensor flat = at::where(index < 0, index + size, index).flatten();
  Ints sizes = x.sizes().vec();
  const auto at_axis = sizes.begin() + (axis < 0 ? axis + x.dim() : axis);
  const auto place = sizes.erase(at_axis);
  sizes.insert(place, index.sizes().begin(), index.sizes().end());
  return {x.index_select(axis, flat).reshape(sizes)};
}

Results slice_of(const NodeRun& n) {
  const auto starts = n.elements(1), ends = n.elements(2);
  Ints axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (n.has(3)) axes = n.elements(3);
  const Ints steps = n.has(4) ? n.elements(4) : Ints(starts.size(), 1);
  at::Tensor y = n.x();
  for (size_t i = 0; i < starts.size(); ++i) {
    if (steps[i] < 1) n.refuse("has a step below 1");
    y = y.slice(axes[i], starts[i], ends[i], steps[i]);
  }
  return {y};
}

Results split_of(const NodeRun& n) {
  Results out;
  for (auto& part : at::split_with_sizes(n.x(), n.elements(1), n.integer("axis", 0))) out.push_back(part);
  return out;
}

Results squeeze_of(const NodeRun& n) {
  auto axes = n.elements(1);
  for (auto& axis : axes) axis = axis < 0 ? axis + n.x().dim() : axis;
  return {n.x().squeeze(axes)};
}

Results unsqueeze_of(const NodeRun& n) {
  auto axes = n.elements(1);
  for (auto& axis : axes) axis = axis < 0 ? axis + n.x().dim() + static_cast<int64_t>(axes.size()) : axis;
  std::sort(axes.begin(), axes.end());
  at::Tensor y = n.x();
  for (const auto axis : axes) y = y.unsqueeze(axis);
  return {y};
}

Results concat_of(const NodeRun& n) { return {at::cat(n.all(), n.integer("axis", 0))}; }

Results pad_of(const NodeRun& n) {
  const auto pads = n.elements(1);
  const auto rank = static_cast<size_t>(n.x().dim());
  Ints from_last;
  for (size_t i = 0; i < rank; ++i) {
    from_last.push_back(pads[rank - 1 - i]);
    from_last.push_back(pads[2 * rank - 1 - i]);
  }
  const auto mode = n.text("mode", "constant");
  if (mode == "constant") return {at::constant_pad_nd(n.x(), from_last, n.has(2) ? n.x(2).item() : c10::Scalar(0))};
  while (from_last.size() > 2 && from_last[from_last.size() - 1] == 0 && from_last[from_last.size() - 2] == 0)
    from_last.resize(from_last.size() - 2);
  return {at::pad(n.x(), from_last, mode == "edge" ? "replicate" : "reflect")};
}

Results trilu(const NodeRun& n) {
  const auto k = n.has(1) ? n.element(1) : 0;
  return {n.integer("upper", 1) != 0 ? at::triu(n.x(), k) : at::tril(n.x(), k)};
}

Results range(const NodeRun& n) { return {at::arange(n.x(0).item(), n.x(1).item(), n.x(2).item(), n.x(0).options())}; }

Results flatten_of(const NodeRun& n) {
  const auto axis = n.integer("axis", 1);
  int64_t rows = 1;
  for (int64_t d = 0; d < axis; ++d) rows *= n.x().size(d);
  return {n.x().reshape({rows, -1})};
}

// Returns the axes: an attribute, or an input since opset 18 (ReduceSum: 13).
Ints reduced_axes(const NodeRun& n) {
  Ints axes = n.has(1) ? n.elements(1) : n.ints("axes");
  if (axes.empty())
    for (int64_t d = 0; d < n.x().dim(); ++d) axes.push_back(d);
  const int64_t input_since = n.node().op == "ReduceSum" ? 13 : 18;
  if (n.has(1) != (n.opset >= input_since) && (n.has(1) || n.find("axes") != nullptr))
    n.refuse("has its axes where its opset does not expect them");
  return axes;
}

template <class Fn>
Results reduce_by(const NodeRun& n, Fn fn) {
  return {fn(n.x(), reduced_axes(n), n.integer("keepdims", 1) != 0)};
}

Results arg_max(const NodeRun& n) { return {at::argmax(n.x(), n.integer("axis", 0), n.integer("keepdims", 1) != 0)}; }
Results arg_min(const NodeRun& n) { return {at::argmin(n.x(), n.integer("axis", 0), n.integer("keepdims", 1) != 0)}; }

Results top_k(const NodeRun& n) {
  const auto [values, indices] = at::topk(n.x(), n.element(1), n.integer("axis", -1), n.integer("largest", 1) != 0);
  return {values, indices};
}

}  // namespace

const NodeTable& shape_nodes() {
  static const NodeTable table{
      {"Reshape", reshape_to},
      {"Expand", expand_to},
      {"Tile", [](const NodeRun& n) { return Results{n.x().repeat(n.elements(1))}; }},
      {"Transpose", [](const NodeRun& n) { return Results{n.x().permute(n.ints("perm"))}; }},
      {"Flatten", flatten_of},
      {"Squeeze", squeeze_of},
      {"Unsqueeze", unsqueeze_of},
      {"Shape", [](const NodeRun& n) { return Results{at::tensor(n.x().sizes(), at::kLong)}; }},
      {"Concat", concat_of},
      {"Split", split_of},
      {"Slice", slice_of},
      {"Gather", gather_along},
      {"GatherElements", [](const NodeRun& n) { return Results{at::gather(n.x(), n.integer("axis", 0), n.x(1))}; }},
      {"Pad", pad_of},
      {"Trilu", trilu},
      {"Range", range},
      {"ReduceMean",
       [](const NodeRun& n) {
         return reduce_by(n, [](const at::Tensor& x, const Ints& axes, bool keep) { return at::mean(x, axes, keep); });
       }},
      {"ReduceSum",
       [](const NodeRun& n) {
         return reduce_by(n, [](const at::Tensor& x, const Ints& axes, bool keep) { return at::sum(x, axes, keep); });
       }},
      {"ReduceMax",
       [](const NodeRun& n) {
         return reduce_by(n, [](const at::Tensor& x, const Ints& axes, bool keep) { return at::amax(x, axes, keep); });
       }},
      {"ReduceMin",
       [](const NodeRun& n) {
         return reduce_by(n, [](const at::Tensor& x, const Ints& axes, bool keep) { return at::amin(x, axes, keep); });
       }},
      {"ReduceL1",
       [](const NodeRun& n) {
         return reduce_by(n, [](const at::Tensor& x, const Ints& axes, bool keep) { return at::sum(at::abs(x), axes, keep); });
       }},
      {"ReduceL2",
       [](const NodeRun& n) {
         return reduce_by(n, [](const at::Tensor& x, const Ints& axes, bool keep) { return at::sqrt(at::sum(x * x, axes, keep)); });
       }},
      {"ReduceLogSumExp",
       [](const NodeRun& n) {
         return reduce_by(n, [](const at::Tensor& x, const Ints& axes, bool keep) { return at::logsumexp(x, axes, keep); });
       }},
      {"ArgMax", arg_max},
      {"ArgMin", arg_min},
      {"CumSum", [](const NodeRun& n) { return Results{at::cumsum(n.x(), n.element(1))}; }},
      {"TopK", top_k},
  };
  return table;
}

}  // namespace npu_train::onnx
