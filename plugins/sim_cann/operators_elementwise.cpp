// Elementwise operators with broadcasting, and their variants that change the first argument.
#include "operators.hpp"

using namespace sim_cann;

#define SIM_CANN_UNARY(NAME, FUNCTION) SIM_CANN_OPERATOR(NAME, [](Tensor self, Out out) { out = at::FUNCTION(self); })
// Also defines the in-place operator.
#define SIM_CANN_UNARY_BOTH(NAME, FUNCTION) \
  SIM_CANN_UNARY(NAME, FUNCTION)            \
  SIM_CANN_OPERATOR(Inplace##NAME, [](Out self) { self = at::FUNCTION(self); })

SIM_CANN_UNARY(Abs, abs)
SIM_CANN_UNARY_BOTH(Acos, acos)
SIM_CANN_UNARY_BOTH(Acosh, acosh)
SIM_CANN_UNARY_BOTH(Asin, asin)
SIM_CANN_UNARY_BOTH(Asinh, asinh)
SIM_CANN_UNARY_BOTH(Atan, atan)
SIM_CANN_UNARY_BOTH(Atanh, atanh)
SIM_CANN_UNARY(BitwiseNot, bitwise_not)
SIM_CANN_UNARY_BOTH(Ceil, ceil)
SIM_CANN_UNARY_BOTH(Cos, cos)
SIM_CANN_UNARY_BOTH(Cosh, cosh)
SIM_CANN_UNARY_BOTH(Erf, erf)
SIM_CANN_UNARY_BOTH(Erfc, erfc)
SIM_CANN_UNARY_BOTH(Erfinv, erfinv)
SIM_CANN_UNARY_BOTH(Exp, exp)
SIM_CANN_UNARY_BOTH(Exp2, exp2)
SIM_CANN_UNARY_BOTH(Expm1, expm1)
SIM_CANN_UNARY_BOTH(Floor, floor)
SIM_CANN_UNARY_BOTH(Frac, frac)
SIM_CANN_UNARY(IsFinite, isfinite)
SIM_CANN_UNARY(IsNegInf, isneginf)
SIM_CANN_UNARY(IsPosInf, isposinf)
SIM_CANN_UNARY_BOTH(Log, log)
SIM_CANN_UNARY_BOTH(Log10, log10)
SIM_CANN_UNARY_BOTH(Log1p, log1p)
SIM_CANN_UNARY_BOTH(Log2, log2)
SIM_CANN_UNARY_BOTH(LogicalNot, logical_not)
SIM_CANN_UNARY_BOTH(Mish, mish)
SIM_CANN_UNARY(Neg, neg)
SIM_CANN_UNARY_BOTH(Reciprocal, reciprocal)
SIM_CANN_UNARY_BOTH(Relu, relu)
SIM_CANN_UNARY(Round, round)
SIM_CANN_UNARY_BOTH(Rsqrt, rsqrt)
SIM_CANN_UNARY_BOTH(Sigmoid, sigmoid)
SIM_CANN_UNARY(Sign, sign)
SIM_CANN_UNARY(Signbit, signbit)
SIM_CANN_UNARY(Silu, silu)
SIM_CANN_UNARY_BOTH(Sin, sin)
SIM_CANN_UNARY_BOTH(Sinc, sinc)
SIM_CANN_UNARY_BOTH(Sinh, sinh)
SIM_CANN_UNARY_BOTH(Sqrt, sqrt)
SIM_CANN_UNARY_BOTH(Tan, tan)
SIM_CANN_UNARY_BOTH(Tanh, tanh)
SIM_CANN_UNARY(Trunc, trunc)
SIM_CANN_UNARY_BOTH(Hardsigmoid, hardsigmoid)
SIM_CANN_UNARY_BOTH(Hardswish, hardswish)
SIM_CANN_OPERATOR(RoundDecimals, [](Tensor self, int64_t decimals, Out out) { out = at::round(self, decimals); })

// ---- Two arguments ----

#define SIM_CANN_BINARY(NAME, FUNCTION) SIM_CANN_OPERATOR(NAME, [](Tensor self, Tensor other, Out out) { out = at::FUNCTION(self, other); })
#define SIM_CANN_BINARY_BOTH(NAME, FUNCTION) \
  SIM_CANN_BINARY(NAME, FUNCTION)            \
  SIM_CANN_OPERATOR(Inplace##NAME, [](Out self, Tensor other) { self = at::FUNCTION(self, other); })
#define SIM_CANN_SCALAR_BOTH(NAME, FUNCTION)                                                           \
  SIM_CANN_OPERATOR(NAME, [](Tensor self, Scalar other, Out out) { out = at::FUNCTION(self, other); }) \
  SIM_CANN_OPERATOR(Inplace##NAME, [](Out self, Scalar other) { self = at::FUNCTION(self, other); })

SIM_CANN_OPERATOR(Add, [](Tensor self, Tensor other, Scalar alpha, Out out) { out = at::add(self, other, alpha); })
SIM_CANN_OPERATOR(Adds, [](Tensor self, Scalar other, Scalar alpha, Out out) { out = at::add(self, other, alpha); })
SIM_CANN_OPERATOR(AddV3, [](Scalar self, Tensor other, Scalar alpha, Out out) { out = at::mul(other, alpha).add(self); })
SIM_CANN_OPERATOR(InplaceAdd, [](Out self, Tensor other, Scalar alpha) { self = at::add(self, other, alpha); })
SIM_CANN_OPERATOR(InplaceAdds, [](Out self, Scalar other, Scalar alpha) { self = at::add(self, other, alpha); })
SIM_CANN_OPERATOR(Sub, [](Tensor self, Tensor other, Scalar alpha, Out out) { out = at::sub(self, other, alpha); })
SIM_CANN_OPERATOR(Subs, [](Tensor self, Scalar other, Scalar alpha, Out out) { out = at::sub(self, other, alpha); })
SIM_CANN_OPERATOR(InplaceSub, [](Out self, Tensor other, Scalar alpha) { self = at::sub(self, other, alpha); })
SIM_CANN_OPERATOR(InplaceSubs, [](Out self, Scalar other, Scalar alpha) { self = at::sub(self, other, alpha); })
SIM_CANN_OPERATOR(Rsub, [](Tensor self, Tensor other, Scalar alpha, Out out) { out = at::rsub(self, other, alpha); })
SIM_CANN_OPERATOR(Rsubs, [](Tensor self, Scalar other, Scalar alpha, Out out) { out = at::rsub(self, other, alpha); })
SIM_CANN_BINARY_BOTH(Mul, mul)
SIM_CANN_SCALAR_BOTH(Muls, mul)
SIM_CANN_BINARY_BOTH(Div, div)
SIM_CANN_SCALAR_BOTH(Divs, div)
SIM_CANN_BINARY_BOTH(FloorDivide, floor_divide)
SIM_CANN_SCALAR_BOTH(FloorDivides, floor_divide)
SIM_CANN_BINARY_BOTH(FmodTensor, fmod)
SIM_CANN_SCALAR_BOTH(FmodScalar, fmod)
SIM_CANN_BINARY_BOTH(RemainderTensorTensor, remainder)
SIM_CANN_SCALAR_BOTH(RemainderTensorScalar, remainder)
SIM_CANN_OPERATOR(RemainderScalarTensor, [](Scalar self, Tensor other, Out out) { out = at::remainder(self, other); })
SIM_CANN_BINARY_BOTH(PowTensorTensor, pow)
SIM_CANN_SCALAR_BOTH(PowTensorScalar, pow)
SIM_CANN_OPERATOR(PowScalarTensor, [](Scalar self, Tensor exponent, Out out) { out = at::pow(self, exponent); })
SIM_CANN_BINARY_BOTH(Atan2, atan2)
SIM_CANN_BINARY(LogAddExp, logaddexp)
SIM_CANN_BINARY(LogAddExp2, logaddexp2)
SIM_CANN_BINARY(XLogYTensor, xlogy)
SIM_CANN_BINARY(Maximum, maximum)
SIM_CANN_BINARY(Minimum, minimum)
SIM_CANN_BINARY(Gcd, gcd)

namespace {
// Returns the rounding of a division by mode: 0: none, 1: truncated, 2: floor.
std::optional<std::string_view> rounding(int mode) {
  if (mode == 0) return std::nullopt;
  TORCH_CHECK(mode == 1 || mode == 2, "rounding mode ", mode, "; allowed: 0 to 2");
  return mode == 1 ? "trunc" : "floor";
}
}  // namespace
SIM_CANN_OPERATOR(DivMod, [](Tensor self, Tensor other, int mode, Out out) { out = at::div(self, other, rounding(mode)); })
SIM_CANN_OPERATOR(DivMods, [](Tensor self, Scalar other, int mode, Out out) { out = at::div(self, other, rounding(mode)); })
SIM_CANN_OPERATOR(InplaceDivMod, [](Out self, Tensor other, int mode) { self = at::div(self, other, rounding(mode)); })
SIM_CANN_OPERATOR(InplaceDivMods, [](Out self, Scalar other, int mode) { self = at::div(self, other, rounding(mode)); })

// ---- Comparisons and logic ----

SIM_CANN_BINARY_BOTH(EqTensor, eq)
SIM_CANN_SCALAR_BOTH(EqScalar, eq)
SIM_CANN_BINARY_BOTH(NeTensor, ne)
SIM_CANN_SCALAR_BOTH(NeScalar, ne)
SIM_CANN_BINARY_BOTH(LtTensor, lt)
SIM_CANN_SCALAR_BOTH(LtScalar, lt)
SIM_CANN_BINARY_BOTH(LeTensor, le)
SIM_CANN_SCALAR_BOTH(LeScalar, le)
SIM_CANN_BINARY_BOTH(GtTensor, gt)
SIM_CANN_SCALAR_BOTH(GtScalar, gt)
SIM_CANN_BINARY_BOTH(GeTensor, ge)
SIM_CANN_SCALAR_BOTH(GeScalar, ge)
SIM_CANN_BINARY_BOTH(LogicalAnd, logical_and)
SIM_CANN_BINARY_BOTH(LogicalOr, logical_or)
SIM_CANN_BINARY(LogicalXor, logical_xor)
SIM_CANN_BINARY_BOTH(BitwiseAndTensor, bitwise_and)
SIM_CANN_SCALAR_BOTH(BitwiseAndScalar, bitwise_and)
SIM_CANN_BINARY(BitwiseOrTensor, bitwise_or)
SIM_CANN_OPERATOR(BitwiseOrScalar, [](Tensor self, Scalar other, Out out) { out = at::bitwise_or(self, other); })
SIM_CANN_BINARY_BOTH(BitwiseXorTensor, bitwise_xor)
SIM_CANN_SCALAR_BOTH(BitwiseXorScalar, bitwise_xor)
SIM_CANN_BINARY(LeftShift, bitwise_left_shift)
SIM_CANN_BINARY(RightShift, bitwise_right_shift)
SIM_CANN_OPERATOR(IsClose, [](Tensor self, Tensor other, double rtol, double atol, bool equal_nan, Out out) {
  out = at::isclose(self, other, rtol, atol, equal_nan);
})
SIM_CANN_OPERATOR(Equal, [](Tensor self, Tensor other, Out out) { out.get().fill_(at::equal(self, other)); })

// ---- Three arguments ----

SIM_CANN_OPERATOR(Addcmul, [](Tensor self, Tensor a, Tensor b, Scalar value, Out out) { out = at::addcmul(self, a, b, value); })
SIM_CANN_OPERATOR(Addcdiv, [](Tensor self, Tensor a, Tensor b, Scalar value, Out out) { out = at::addcdiv(self, a, b, value); })
SIM_CANN_OPERATOR(InplaceAddcmul, [](Out self, Tensor a, Tensor b, Scalar value) { self = at::addcmul(self, a, b, value); })
SIM_CANN_OPERATOR(InplaceAddcdiv, [](Out self, Tensor a, Tensor b, Scalar value) { self = at::addcdiv(self, a, b, value); })
SIM_CANN_OPERATOR(Lerp, [](Tensor self, Tensor end, Tensor weight, Out out) { out = at::lerp(self, end, weight); })
SIM_CANN_OPERATOR(Lerps, [](Tensor self, Tensor end, Scalar weight, Out out) { out = at::lerp(self, end, weight); })
SIM_CANN_OPERATOR(InplaceLerp, [](Out self, Tensor end, Tensor weight) { self = at::lerp(self, end, weight); })
SIM_CANN_OPERATOR(InplaceLerps, [](Out self, Tensor end, Scalar weight) { self = at::lerp(self, end, weight); })
SIM_CANN_OPERATOR(SWhere, [](Tensor condition, Tensor self, Tensor other, Out out) { out = at::where(condition, self, other); })
SIM_CANN_OPERATOR(Clamp, [](Tensor self, MaybeScalar min, MaybeScalar max, Out out) { out = at::clamp(self, min, max); })
SIM_CANN_OPERATOR(ClampMin, [](Tensor self, Scalar min, Out out) { out = at::clamp_min(self, min); })
SIM_CANN_OPERATOR(ClampMax, [](Tensor self, Scalar max, Out out) { out = at::clamp_max(self, max); })
SIM_CANN_OPERATOR(InplaceClampMax, [](Out self, Scalar max) { self = at::clamp_max(self, max); })
SIM_CANN_OPERATOR(ClampTensor, [](Tensor self, Tensor min, Tensor max, Out out) { out = at::clamp(self, min, max); })
SIM_CANN_BINARY_BOTH(ClampMinTensor, clamp_min)
SIM_CANN_BINARY_BOTH(ClampMaxTensor, clamp_max)
SIM_CANN_OPERATOR(NanToNum, [](Tensor self, float nan, float positive, float negative, Out out) {
  out = at::nan_to_num(self, nan, positive, negative);
})
SIM_CANN_OPERATOR(InplaceNanToNum,
                  [](Out self, float nan, float positive, float negative) { self = at::nan_to_num(self, nan, positive, negative); })
SIM_CANN_OPERATOR(InplaceMaskedFillScalar, [](Out self, Tensor mask, Scalar value) { self.get().masked_fill_(mask, value); })
SIM_CANN_OPERATOR(InplaceMaskedFillTensor, [](Out self, Tensor mask, Tensor value) { self.get().masked_fill_(mask, value.reshape({})); })
SIM_CANN_OPERATOR(InplaceMaskedScatter, [](Out self, Tensor mask, Tensor source) { self.get().masked_scatter_(mask, source); })

// ---- Values without tensors ----

SIM_CANN_OPERATOR(InplaceZero, [](Out self) { self.get().zero_(); })
SIM_CANN_OPERATOR(InplaceOne, [](Out self) { self.get().fill_(1); })
SIM_CANN_OPERATOR(InplaceFillScalar, [](Out self, Scalar value) { self.get().fill_(value); })
SIM_CANN_OPERATOR(InplaceFillTensor, [](Out self, Tensor value) { self.get().fill_(value.reshape({})); })
SIM_CANN_OPERATOR(InplaceFillDiagonal, [](Out self, Scalar value, bool wrap) { self.get().fill_diagonal_(value, wrap); })
SIM_CANN_OPERATOR(InplaceCopy, [](Out self, Tensor source) { self.get().copy_(source); })
SIM_CANN_OPERATOR(Cast, [](Tensor self, Dtype, Out out) { out = self; })
SIM_CANN_OPERATOR(Arange, [](Scalar start, Scalar end, Scalar step, Out out) { out = at::arange(start, end, step, out.get().options()); })
SIM_CANN_OPERATOR(Range, [](Scalar start, Scalar end, Scalar step, Out out) { out = at::range(start, end, step, out.get().options()); })
SIM_CANN_OPERATOR(Linspace,
                  [](Scalar start, Scalar end, int64_t steps, Out out) { out = at::linspace(start, end, steps, out.get().options()); })
SIM_CANN_OPERATOR(Eye, [](int64_t n, int64_t m, Out out) { out = at::eye(n, m, out.get().options()); })
