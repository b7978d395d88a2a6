// Elementwise operators.
#include <ATen/ops/result_type.h>

#include <cmath>

#include "export/rows.hpp"

namespace npu_train::onnx {
namespace {

void unary(Call& c, const char* op, Attributes attributes = {}) {
  c.give(c.to.node(op, {c.operand(0, c.result().scalar_type())}, std::move(attributes)));
}

std::string number_like(Call& c, double value) { return c.to.number(value, c.type()); }

// Computes in fp32 (Fp32Nodes), so that the result is rounded only once, as by a single node. mish(), log_sigmoid() and gelu() do the same.
void silu(Call& c) {
  const Lowering::Fp32Nodes fp32(c.to);
  c.give(c.to.node("Mul", {c.input(0), c.to.node("Sigmoid", {c.input(0)})}));
}

void mish(Call& c) {
  const Lowering::Fp32Nodes fp32(c.to);
  c.give(c.to.node("Mul", {c.input(0), c.to.node("Tanh", {c.to.node("Softplus", {c.input(0)})})}));
}

void log_sigmoid(Call& c) {
  const Lowering::Fp32Nodes fp32(c.to);
  c.give(c.to.node("Neg", {c.to.node("Softplus", {c.to.node("Neg", {c.input(0)})})}));
}

// Uses Erf at every opset, because ATC has no plugin for Gelu.
void gelu(Call& c) {
  const Lowering::Fp32Nodes fp32(c.to);
  const auto x = c.input(0);
  std::string inner;
  if (c.text(1) == "tanh") {
    const auto cube = c.to.node("Mul", {c.to.node("Mul", {x, x}), x});
    const auto sum = c.to.node("Add", {x, c.to.node("Mul", {cube, number_like(c, 0.044715)})});
    inner = c.to.node("Tanh", {c.to.node("Mul", {sum, number_like(c, M_2_SQRTPI * M_SQRT1_2)})});
  } else {
    inner = c.to.node("Erf", {c.to.node("Div", {x, number_like(c, M_SQRT2)})});
  }
  c.give(c.to.node("Mul", {c.to.node("Mul", {x, c.to.node("Add", {inner, number_like(c, 1)})}), number_like(c, 0.5)}));
}

void elu(Call& c) {
  if (c.number(3) != 1) c.to.refuse("has an input_scale other than 1", "use torch::celu");
  const auto y = c.to.node("Elu", {c.input(0)}, {{"alpha", c.number(1)}});
  c.give(c.number(2) == 1 ? y : c.to.node("Mul", {y, number_like(c, c.number(2))}));
}

void prelu(Call& c) {
  std::string slope = c.input(1);
  if (c.tensor(1).numel() > 1 && c.rank() > 2) {
    Ints by_channel(static_cast<size_t>(c.rank() - 1), 1);
    by_channel[0] = c.tensor(1).numel();
    slope = c.to.node("Reshape", {slope, c.to.ints(by_channel)});
  }
  c.give(c.to.node("PRelu", {c.input(0), slope}));
}

void softplus(Call& c) {
  const auto beta = c.number(1);
  if (beta == 1) return unary(c, "Softplus");
  const auto factor = number_like(c, beta);
  c.give(c.to.node("Div", {c.to.node("Softplus", {c.to.node("Mul", {c.input(0), factor})}), factor}));
}

// Clamps between two optional limits; an absent limit is infinite.
void clip(Call& c, size_t low, size_t high) {
  const auto type = c.result().scalar_type();
  if (c.op().tensor(low) || (high < c.op().args.size() && c.op().tensor(high)))
    c.to.refuse("has tensors as limits", "use torch::maximum and torch::minimum");
  const auto limit = [&](size_t i) { return c.has(i) ? c.to.number(c.op().args[i].toScalar(), type) : std::string(); };
  c.give(c.to.node("Clip", {c.operand(0, type), limit(low), limit(high)}));
}

constexpr size_t kAbsent = 99;  // larger than the index of any argument

void rsqrt(Call& c) { c.give(c.to.node("Reciprocal", {c.to.node("Sqrt", {c.input(0)})})); }

at::ScalarType arithmetic_type(Call& c) {
  const auto type = c.result().scalar_type();
  if (type == at::kBool) c.to.refuse("computes with booleans", "use logical_or and logical_and, or convert them: x.to(torch::kInt)");
  return type;
}

void binary(Call& c, const char* op) {
  const auto type = arithmetic_type(c);
  c.give(c.to.node(op, {c.operand(0, type), c.operand(1, type)}));
}

// Returns x + alpha y.
void add_scaled(Call& c, const char* op, size_t x, size_t y) {
  const auto type = arithmetic_type(c);
  std::string second = c.operand(y, type);
  if (c.number(2) != 1) second = c.to.node("Mul", {second, c.to.number(c.op().args[2].toScalar(), type)});
  c.give(c.to.node(op, {c.operand(x, type), second}));
}

// Returns other - alpha x.
void rsub(Call& c) { add_scaled(c, "Sub", 1, 0); }

void div(Call& c) {
  const std::string mode = c.has(2) ? c.text(2) : "";
  const auto type = c.result().scalar_type();
  if (mode == "trunc" && !at::isIntegralType(type, false)) c.to.refuse("has rounding_mode 'trunc'", "use 'floor', or integers");
  if (mode == "floor" && !at::isFloatingType(type)) c.to.refuse("has rounding_mode 'floor' on integers", "use 'trunc'");
  binary(c, "Div");
  if (mode == "floor") c.to.set_name(c.op().gives[0], c.to.node("Floor", {c.to.name_of(c.op().gives[0])}));
}

// Compares the operands in the dtype to which libtorch promotes them.
std::string compared(Call& c, const char* op) {
  const auto type = c.op().tensor(1) ? at::result_type(c.tensor(0), c.tensor(1)) : at::result_type(c.tensor(0), c.op().args[1].toScalar());
  return c.to.node(op, {c.operand(0, type), c.operand(1, type)});
}

void logical(Call& c, const char* op) { c.give(c.to.node(op, {c.operand(0, at::kBool), c.operand(1, at::kBool)})); }

void bitwise(Call& c, const char* op) {
  if (c.type() != at::kBool) c.to.refuse("works on integers", "use booleans");
  logical(c, op);
}

void logical_not(Call& c) { c.give(c.to.node("Not", {c.operand(0, at::kBool)})); }

void where(Call& c) {
  const auto type = c.result().scalar_type();
  c.give(c.to.node("Where", {c.operand(0, at::kBool), c.operand(1, type), c.operand(2, type)}));
}

void masked_fill(Call& c) { c.give(c.to.node("Where", {c.input(1), c.operand(2, c.type()), c.input(0)})); }

void add_combined(Call& c, const char* op) {
  std::string term = c.to.node(op, {c.input(1), c.input(2)});
  if (c.number(3) != 1) term = c.to.node("Mul", {term, number_like(c, c.number(3))});
  c.give(c.to.node("Add", {c.input(0), term}));
}

}  // namespace

const std::vector<Row>& arithmetic_rows() {
  static const std::vector<Row> rows{
      {"relu", 15, 20, [](Call& c) { unary(c, "Relu"); }},
      {"sigmoid", 15, 20, [](Call& c) { unary(c, "Sigmoid"); }},
      {"tanh", 15, 20, [](Call& c) { unary(c, "Tanh"); }},
      {"exp", 15, 20, [](Call& c) { unary(c, "Exp"); }},
      {"log", 15, 20, [](Call& c) { unary(c, "Log"); }},
      {"sqrt", 15, 20, [](Call& c) { unary(c, "Sqrt"); }},
      {"rsqrt", 15, 20, rsqrt},
      {"reciprocal", 15, 20, [](Call& c) { unary(c, "Reciprocal"); }},
      {"neg", 15, 20, [](Call& c) { unary(c, "Neg"); }},
      {"abs", 15, 20, [](Call& c) { unary(c, "Abs"); }},
      {"erf", 15, 20, [](Call& c) { unary(c, "Erf"); }},
      {"sin", 15, 20, [](Call& c) { unary(c, "Sin"); }},
      {"cos", 15, 20, [](Call& c) { unary(c, "Cos"); }},
      {"floor", 15, 20, [](Call& c) { unary(c, "Floor"); }},
      {"ceil", 15, 20, [](Call& c) { unary(c, "Ceil"); }},
      {"sign", 15, 20, [](Call& c) { unary(c, "Sign"); }},
      {"silu", 15, 20, silu},
      {"mish", 15, 20, mish},
      {"log_sigmoid", 15, 20, log_sigmoid},
      {"gelu", 15, 20, gelu},
      {"elu", 15, 20, elu},
      {"celu", 15, 20,
       [](Call& c) {
         unary(c, "Celu", {{"alpha", c.number(1)}});
       }},
      {"selu", 15, 20, [](Call& c) { unary(c, "Selu"); }},
      {"leaky_relu", 15, 20,
       [](Call& c) {
         unary(c, "LeakyRelu", {{"alpha", c.number(1)}});
       }},
      {"prelu", 15, 20, prelu},
      {"hardswish", 15, 20, [](Call& c) { unary(c, "HardSwish"); }},
      {"hardsigmoid", 15, 20,
       [](Call& c) {
         unary(c, "HardSigmoid", {{"alpha", 1.0 / 6}, {"beta", 0.5}});
       }},
      {"softplus", 15, 20, softplus},
      {"hardtanh", 15, 20, [](Call& c) { clip(c, 1, 2); }},
      {"clamp", 15, 20, [](Call& c) { clip(c, 1, 2); }},
      {"clamp_min", 15, 20, [](Call& c) { clip(c, 1, kAbsent); }},
      {"clamp_max", 15, 20, [](Call& c) { clip(c, kAbsent, 1); }},
      {"add", 15, 20, [](Call& c) { add_scaled(c, "Add", 0, 1); }},
      {"sub", 15, 20, [](Call& c) { add_scaled(c, "Sub", 0, 1); }},
      {"rsub", 15, 20, rsub},
      {"mul", 15, 20, [](Call& c) { binary(c, "Mul"); }},
      {"div", 15, 20, div},
      {"pow", 15, 20, [](Call& c) { binary(c, "Pow"); }},
      {"maximum", 15, 20, [](Call& c) { binary(c, "Max"); }},
      {"minimum", 15, 20, [](Call& c) { binary(c, "Min"); }},
      {"eq", 15, 20, [](Call& c) { c.give(compared(c, "Equal")); }},
      {"ne", 15, 20, [](Call& c) { c.give(c.to.node("Not", {compared(c, "Equal")})); }},
      {"lt", 15, 20, [](Call& c) { c.give(compared(c, "Less")); }},
      {"le", 15, 20, [](Call& c) { c.give(compared(c, "LessOrEqual")); }},
      {"gt", 15, 20, [](Call& c) { c.give(compared(c, "Greater")); }},
      {"ge", 15, 20, [](Call& c) { c.give(compared(c, "GreaterOrEqual")); }},
      {"logical_not", 15, 20, logical_not},
      {"logical_and", 15, 20, [](Call& c) { logical(c, "And"); }},
      {"logical_or", 15, 20, [](Call& c) { logical(c, "Or"); }},
      {"bitwise_and", 15, 20, [](Call& c) { bitwise(c, "And"); }},
      {"bitwise_or", 15, 20, [](Call& c) { bitwise(c, "Or"); }},
      {"where", 15, 20, where},
      {"masked_fill", 15, 20, masked_fill},
      {"addcmul", 15, 20, [](Call& c) { add_combined(c, "Mul"); }},
      {"addcdiv", 15, 20, [](Call& c) { add_combined(c, "Div"); }},
  };
  return rows;
}

}  // namespace npu_train::onnx
