// Reductions, softmax, sorting.
#include <numeric>

#include "export/rows.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::onnx {
namespace {

// Returns the dimensions in argument `i`, counted from the front; all dimensions if absent.
Ints reduced(Call& c, size_t i) {
  Ints axes = i < c.op().args.size() ? c.ints(i) : Ints();
  for (auto& d : axes) d = d < 0 ? d + c.rank() : d;
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(c.rank()));
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}

// Adds a reduction. Its axes are an input since opset 18 (ReduceSum: since 13), and an attribute before that.
std::string reduce(Call& c, const std::string& op, const std::string& x, const Ints& axes, bool keep) {
  const int64_t from = op == "ReduceSum" ? 13 : 18;
  if (c.to.opset() >= from) return c.to.node(op, {x, c.to.ints(axes)}, {{"keepdims", static_cast<int64_t>(keep)}});
  return c.to.node(op, {x}, {{"axes", axes}, {"keepdims", static_cast<int64_t>(keep)}});
}

// Lowers the forms (x), (x, dtype) and (x, dims, keepdim, dtype).
void sum_or_mean(Call& c, const std::string& op) {
  const bool by_dim = c.op().args.size() > 2;
  const auto axes = by_dim ? reduced(c, 1) : reduced(c, 99);
  const bool keep = by_dim && c.flag(2);
  const auto x = c.operand(0, c.result().scalar_type());
  // Uses GlobalAveragePool, which works at every opset: Ascend's plugins support ReduceMean of opset 18 only with fixed axes.
  if (op == "ReduceMean" && c.rank() == 4 && axes == Ints{2, 3}) {
    const auto y = c.to.node("GlobalAveragePool", {x});
    return c.give(keep ? y : c.to.node("Flatten", {y}, {{"axis", int64_t{1}}}));
  }
  c.give(reduce(c, op, x, axes, keep));
}

void extreme_along(Call& c, const std::string& op) { c.give(reduce(c, op, c.input(0), reduced(c, 1), c.flag(2))); }

// Lowers the three forms of torch::max: over all elements, of two tensors, along a dimension with indices.
void extreme(Call& c, const std::string& which) {
  const auto& form = c.op().op.schema().overload_name();
  if (form == "other") return c.give(c.to.node(which, {c.operand(0, c.result().scalar_type()), c.operand(1, c.result().scalar_type())}));
  if (form.empty()) return c.give(reduce(c, "Reduce" + which, c.input(0), reduced(c, 99), false));
  const auto axis = c.axis(1, c.rank());
  c.give(reduce(c, "Reduce" + which, c.input(0), {axis}, c.flag(2)));
  c.give(c.to.node("Arg" + which, {c.input(0)}, {{"axis", axis}, {"keepdims", static_cast<int64_t>(c.flag(2))}}), 1);
}

void arg_extreme(Call& c, const std::string& op) {
  if (!c.has(1)) c.to.refuse("finds the extreme of the flattened tensor", "name a dimension");
  c.give(c.to.node(op, {c.input(0)}, {{"axis", c.axis(1, c.rank())}, {"keepdims", static_cast<int64_t>(c.flag(2))}}));
}

void vector_norm(Call& c) {
  const auto order = c.number(1);
  if (order != 1 && order != 2) c.to.refuse("is a norm of order " + shortest(order), "use order 1 or 2");
  c.give(reduce(c, order == 1 ? "ReduceL1" : "ReduceL2", c.input(0), reduced(c, 2), c.flag(3)));
}

void softmax_of(Call& c, const char* op) {
  c.give(c.to.node(op, {c.operand(0, c.result().scalar_type())}, {{"axis", c.axis(1, c.rank())}}));
}

void cumsum(Call& c) { c.give(c.to.node("CumSum", {c.operand(0, c.result().scalar_type()), c.to.number(c.axis(1, c.rank()), at::kLong)})); }

void topk(Call& c) {
  const auto both = c.to.nodes("TopK", {c.input(0), c.to.ints({c.integer(1)})}, 2,
                               {{"axis", c.axis(2, c.rank())}, {"largest", static_cast<int64_t>(c.flag(3))}, {"sorted", int64_t{1}}});
  c.give(both[0], 0);
  c.give(both[1], 1);
}

}  // namespace

const std::vector<Row>& reduction_rows() {
  static const std::vector<Row> rows{
      {"mean", 15, 20, [](Call& c) { sum_or_mean(c, "ReduceMean"); }},
      {"sum", 15, 20, [](Call& c) { sum_or_mean(c, "ReduceSum"); }},
      {"amax", 15, 20, [](Call& c) { extreme_along(c, "ReduceMax"); }},
      {"amin", 15, 20, [](Call& c) { extreme_along(c, "ReduceMin"); }},
      {"logsumexp", 15, 20, [](Call& c) { extreme_along(c, "ReduceLogSumExp"); }},
      {"linalg_vector_norm", 15, 20, vector_norm},
      {"max", 15, 20, [](Call& c) { extreme(c, "Max"); }},
      {"min", 15, 20, [](Call& c) { extreme(c, "Min"); }},
      {"argmax", 15, 20, [](Call& c) { arg_extreme(c, "ArgMax"); }},
      {"argmin", 15, 20, [](Call& c) { arg_extreme(c, "ArgMin"); }},
      {"softmax", 15, 20, [](Call& c) { softmax_of(c, "Softmax"); }},
      {"_softmax", 15, 20, [](Call& c) { softmax_of(c, "Softmax"); }},
      {"log_softmax", 15, 20, [](Call& c) { softmax_of(c, "LogSoftmax"); }},
      {"_log_softmax", 15, 20, [](Call& c) { softmax_of(c, "LogSoftmax"); }},
      {"cumsum", 15, 20, cumsum},
      {"topk", 15, 20, topk},
  };
  return rows;
}

}  // namespace npu_train::onnx
