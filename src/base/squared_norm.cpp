#include "npu_train/base/squared_norm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

namespace npu_train {
namespace {

// Range [first, last) of the digits of ExactSum.
struct Digits {
  int first, last;
  int64_t count() const { return last - first; }
};
constexpr int digit_of(int exponent) { return (exponent - ExactSum::kLowestExponent) / 32; }
constexpr Digits kOfFp32 = {digit_of(-320), digit_of(288)}, kOfFp64 = {digit_of(-992), digit_of(1024)};

// Returns the value of one unit of each digit, or its reciprocal: powers of two, whose bits are set directly on the device.
at::Tensor units(const Digits& digits, bool reciprocal, const at::Tensor& like) {
  constexpr int64_t kBias = 1023, kOne = int64_t{1} << 52;
  const auto exponents = at::arange(digits.first, digits.last, like.options().dtype(at::kLong)) * 32 + ExactSum::kLowestExponent;
  return (((reciprocal ? -exponents : exponents) + kBias) * kOne).view(at::kDouble);
}

at::Tensor count_of(const at::Tensor& which) { return which.sum(at::kLong).reshape({1}); }

constexpr int64_t kPieces = 4;  // number of 16-bit pieces of an int64

}  // namespace

at::Tensor norm_of(const SquaredNorm& squares) {
  const auto& parts = squares.parts;
  if (parts.is_floating_point()) return parts.sqrt().reshape({}).to(squares.dtype);
  if (!parts.is_cpu()) return norm_by_operators(parts).to(squares.dtype);
  ExactSum::Limbs limbs;
  const auto dense = parts.contiguous();
  std::copy_n(dense.const_data_ptr<int64_t>(), limbs.size(), limbs.begin());
  return at::full({}, ExactSum(limbs).root(), at::TensorOptions().dtype(squares.dtype));
}

at::Tensor norm_by_operators(const at::Tensor& parts) {
  const auto digits = parts.narrow(0, kOfFp64.first, kOfFp64.count()).to(at::kDouble);
  const auto norm = (digits * units(kOfFp64, /*reciprocal=*/false, parts)).sum().sqrt();
  const auto with_inf = at::where(parts[ExactSum::kPlusInf] > 0, std::numeric_limits<double>::infinity(), norm);
  return at::where(parts[ExactSum::kNaN] > 0, std::numeric_limits<double>::quiet_NaN(), with_inf);
}

at::Tensor parts_of(const ExactSum& squares) {
  const auto limbs = squares.limbs();
  at::Tensor out = at::empty({ExactSum::kLimbs}, at::TensorOptions().dtype(at::kLong));
  std::copy(limbs.begin(), limbs.end(), out.data_ptr<int64_t>());
  return out;
}

at::Tensor parts_of(const at::Tensor& squares, bool of_fp64) {
  const Digits& digits = of_fp64 ? kOfFp64 : kOfFp32;
  const auto finite = at::where(at::isfinite(squares), squares, 0.0);
  // Shape [digits, n]: each sum in units of each digit, rounded down. Subtracting the part in higher digits leaves the digit. All steps are
  // exact.
  auto multiples = (finite.unsqueeze(0) * units(digits, /*reciprocal=*/true, squares).unsqueeze(1)).floor_();
  const auto above = multiples.narrow(0, 1, digits.count() - 1) * 0x1p32;
  // Where a multiple overflows to inf, the difference is not finite. Such a digit is below the last bit of the sum, so it becomes 0.
  multiples.narrow(0, 0, digits.count() - 1).sub_(above).nan_to_num_(0.0, 0.0, 0.0);
  const auto options = squares.options().dtype(at::kLong);
  return at::cat({at::zeros({digits.first}, options), multiples.sum(1).to(at::kLong), at::zeros({ExactSum::kDigits - digits.last}, options),
                  count_of(squares == std::numeric_limits<double>::infinity()), at::zeros({1}, options), count_of(squares.isnan())});
}

at::Tensor int32_parts(const at::Tensor& parts) {
  if (parts.scalar_type() != at::kLong) return parts;
  std::vector<at::Tensor> pieces;
  for (int64_t i = 0; i < kPieces; ++i) {
    const auto shifted = parts.bitwise_right_shift(16 * i);
    pieces.push_back(i + 1 < kPieces ? shifted.bitwise_and(0xffff) : shifted);  // the last piece keeps the sign
  }
  return at::stack(pieces).to(at::kInt);
}

at::Tensor from_int32_parts(const at::Tensor& parts) {
  if (parts.scalar_type() != at::kInt) return parts;
  const auto wide = parts.to(at::kLong);
  auto out = wide[0].clone();
  for (int64_t i = 1; i < kPieces; ++i) out += wide[i].bitwise_left_shift(16 * i);
  return out;
}

}  // namespace npu_train
