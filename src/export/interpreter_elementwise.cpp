// Elementwise operators.
#include <ATen/ATen.h>

#include <limits>

#include "export/interpreter.hpp"

namespace npu_train::onnx {
namespace {

// Integer division truncates.
Results divide(const NodeRun& n) {
  if (at::isIntegralType(n.x(0).scalar_type(), false)) return {at::div(n.x(0), n.x(1), "trunc")};
  return {at::div(n.x(0), n.x(1))};
}

Results clip(const NodeRun& n) {
  at::Tensor y = n.x();
  if (n.has(1)) y = at::maximum(y, n.x(1));
  if (n.has(2)) y = at::minimum(y, n.x(2));
  return {y};
}

Results hard_sigmoid(const NodeRun& n) { return {(n.x() * n.number("alpha", 0.2) + n.number("beta", 0.5)).clamp(0, 1)}; }

Results cast_to(const NodeRun& n) { return {n.x().to(scalar_type(static_cast<int32_t>(n.integer("to", 1)), n.node().name))}; }

Results fold_pairs(const NodeRun& n, at::Tensor (*of)(const at::Tensor&, const at::Tensor&)) {
  at::Tensor y = n.x();
  for (size_t i = 1; i < n.all().size(); ++i) y = of(y, n.x(i));
  return {y};
}

}  // namespace

const NodeTable& elementwise_nodes() {
  static const NodeTable table{
      {"Relu", [](const NodeRun& n) { return Results{at::relu(n.x())}; }},
      {"Sigmoid", [](const NodeRun& n) { return Results{at::sigmoid(n.x())}; }},
      {"Tanh", [](const NodeRun& n) { return Results{at::tanh(n.x())}; }},
      {"Exp", [](const NodeRun& n) { return Results{at::exp(n.x())}; }},
      {"Log", [](const NodeRun& n) { return Results{at::log(n.x())}; }},
      {"Sqrt", [](const NodeRun& n) { return Results{at::sqrt(n.x())}; }},
      {"Reciprocal", [](const NodeRun& n) { return Results{at::reciprocal(n.x())}; }},
      {"Neg", [](const NodeRun& n) { return Results{at::neg(n.x())}; }},
      {"Abs", [](const NodeRun& n) { return Results{at::abs(n.x())}; }},
      {"Erf", [](const NodeRun& n) { return Results{at::erf(n.x())}; }},
      {"Sin", [](const NodeRun& n) { return Results{at::sin(n.x())}; }},
      {"Cos", [](const NodeRun& n) { return Results{at::cos(n.x())}; }},
      {"Floor", [](const NodeRun& n) { return Results{at::floor(n.x())}; }},
      {"Ceil", [](const NodeRun& n) { return Results{at::ceil(n.x())}; }},
      {"Sign", [](const NodeRun& n) { return Results{at::sign(n.x())}; }},
      {"Softplus", [](const NodeRun& n) { return Results{at::logaddexp(n.x(), at::zeros_like(n.x()))}; }},
      {"Elu", [](const NodeRun& n) { return Results{at::elu(n.x(), n.number("alpha", 1))}; }},
      {"Celu", [](const NodeRun& n) { return Results{at::celu(n.x(), n.number("alpha", 1))}; }},
      {"Selu", [](const NodeRun& n) { return Results{at::selu(n.x())}; }},
      {"LeakyRelu", [](const NodeRun& n) { return Results{at::where(n.x() < 0, n.x() * n.number("alpha", 0.01), n.x())}; }},
      {"PRelu", [](const NodeRun& n) { return Results{at::where(n.x() < 0, n.x() * n.x(1), n.x())}; }},
      {"HardSwish", [](const NodeRun& n) { return Results{n.x() * (n.x() / 6 + 0.5).clamp(0, 1)}; }},
      {"HardSigmoid", hard_sigmoid},
      {"Clip", clip},
      {"Cast", cast_to},
      {"Identity", [](const NodeRun& n) { return Results{n.x()}; }},
      {"Add", [](const NodeRun& n) { return Results{at::add(n.x(), n.x(1))}; }},
      {"Sub", [](const NodeRun& n) { return Results{at::sub(n.x(), n.x(1))}; }},
      {"Mul", [](const NodeRun& n) { return Results{at::mul(n.x(), n.x(1))}; }},
      {"Div", divide},
      {"Pow", [](const NodeRun& n) { return Results{at::pow(n.x(), n.x(1))}; }},
      {"Max", [](const NodeRun& n) { return fold_pairs(n, at::maximum); }},
      {"Min", [](const NodeRun& n) { return fold_pairs(n, at::minimum); }},
      {"Equal", [](const NodeRun& n) { return Results{at::eq(n.x(), n.x(1))}; }},
      {"Less", [](const NodeRun& n) { return Results{at::lt(n.x(), n.x(1))}; }},
      {"LessOrEqual", [](const NodeRun& n) { return Results{at::le(n.x(), n.x(1))}; }},
      {"Greater", [](const NodeRun& n) { return Results{at::gt(n.x(), n.x(1))}; }},
      {"GreaterOrEqual", [](const NodeRun& n) { return Results{at::ge(n.x(), n.x(1))}; }},
      {"Not", [](const NodeRun& n) { return Results{at::logical_not(n.x())}; }},
      {"And", [](const NodeRun& n) { return Results{at::logical_and(n.x(), n.x(1))}; }},
      {"Or", [](const NodeRun& n) { return Results{at::logical_or(n.x(), n.x(1))}; }},
      {"Where", [](const NodeRun& n) { return Results{at::where(n.x(), n.x(1), n.x(2))}; }},
  };
  return table;
}

}  // namespace npu_train::onnx
