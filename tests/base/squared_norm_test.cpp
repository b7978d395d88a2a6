#include "testing.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <vector>

#include "npu_train/base/squared_norm.hpp"
#include "npu_train/core/seed.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns random positive numbers between 2^low and 2^high.
std::vector<double> drawn(size_t n, int low, int high) {
  Philox draw(5);
  std::vector<double> out(n);
  for (auto& x : out) {
    const double mantissa = 1 + std::ldexp(static_cast<double>((uint64_t{draw()} << 20) ^ draw()), -52);
    x = std::ldexp(mantissa, low + static_cast<int>(draw.below(static_cast<uint32_t>(high - low))));
  }
  return out;
}

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double v : values) sum.add(v);
  return sum;
}

/// Returns the digits of parts() with all carries done.
ExactSum::Limbs carried(const at::Tensor& parts) {
  ExactSum::Limbs limbs;
  std::copy_n(parts.const_data_ptr<int64_t>(), limbs.size(), limbs.begin());
  return ExactSum(limbs).limbs();
}

at::Tensor tensor_of(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

}  // namespace

TEST_CASE("the norm is the root of the sum, in the dtype that is requested") {
  const SquaredNorm squares{.parts = parts_of(sum_of({1, 1, 2.25})), .dtype = at::kFloat};
  CHECK((norm_of(squares).scalar_type() == at::kFloat));
  CHECK(norm_of(squares).item<float>() == static_cast<float>(std::sqrt(4.25)));
  CHECK(norm_of({squares.parts, at::kDouble}).item<double>() == std::sqrt(4.25));
  CHECK(norm_of({at::full({1}, 6.25F), at::kFloat}).item<float>() == 2.5F);
  CHECK(norm_of({at::full({1}, 6.25F), at::kFloat}).dim() == 0);
}

TEST_CASE("operators on a device give the exact sum that the host gives") {
  const auto fp32 = drawn(3000, -246, 262), fp64 = drawn(3000, -939, 1000);  // numbers of 53 bits, all of which must count
  CHECK(carried(parts_of(tensor_of(fp32), false)) == sum_of(fp32).limbs());
  CHECK(carried(parts_of(tensor_of(fp32), true)) == sum_of(fp32).limbs());
  CHECK(carried(parts_of(tensor_of(fp64), true)) == sum_of(fp64).limbs());
  const std::vector<double> ends = {0x1p-298, 0x1p262, 0, 0x1.fffffffffffffp262, 0x1p-320};
  CHECK(carried(parts_of(tensor_of(ends), false)) == sum_of(ends).limbs());
  const std::vector<double> far = {0x1p-992, 0x1.fffffffffffffp1023, 0};
  CHECK(carried(parts_of(tensor_of(far), true)) == sum_of(far).limbs());
  CHECK(carried(parts_of(tensor_of({kInf, 1, kNaN, kInf}), false)) == sum_of({kInf, 1, kNaN, kInf}).limbs());
}

TEST_CASE("operators on a device give the norm, up to the last places of fp64") {
  for (const auto& values : {drawn(3000, -246, 262), drawn(10, -900, -800), drawn(7, 1000, 1020)}) {
    const auto norm = norm_by_operators(parts_of(tensor_of(values), true));
    CHECK(norm.dim() == 0);
    CHECK(norm.item<double>() / sum_of(values).root() == doctest::Approx(1).epsilon(1e-15));
  }
  CHECK(norm_by_operators(parts_of(tensor_of({0, 0}), true)).item<double>() == 0);
  CHECK(norm_by_operators(parts_of(tensor_of({1, kInf}), false)).item<double>() == kInf);
  CHECK(std::isnan(norm_by_operators(parts_of(tensor_of({1, kNaN, kInf}), false)).item<double>()));
}

TEST_CASE("parts of ranks add elementwise, as int32 too") {
  const auto values = drawn(4096, -246, 262);
  const auto all = sum_of(values);
  auto by_host = parts_of(ExactSum()), by_operators = by_host.clone();
  auto short_host = int32_parts(by_host), short_operators = short_host.clone();
  for (const double v : values) {
    const auto host = parts_of(sum_of({v})), operators = parts_of(tensor_of({v}), false);
    by_host += host, by_operators += operators;
    short_host += int32_parts(host), short_operators += int32_parts(operators);
  }
  CHECK((short_host.scalar_type() == at::kInt));
  for (const auto& parts : {by_host, by_operators, from_int32_parts(short_host), from_int32_parts(short_operators)}) {
    CHECK((parts.scalar_type() == at::kLong));
    CHECK(carried(parts) == all.limbs());
  }
  CHECK(at::equal(from_int32_parts(short_host), by_host));
  const auto negative = parts_of(sum_of({-1.5, -1e300}));
  CHECK(at::equal(from_int32_parts(int32_parts(negative)), negative));
  const auto rounded = at::full({1}, 2.0F);
  CHECK(int32_parts(rounded).is_same(rounded));
  CHECK(from_int32_parts(rounded).is_same(rounded));
}
