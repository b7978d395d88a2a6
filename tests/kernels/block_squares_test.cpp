#include "testing.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "instruction_sets.hpp"
#include "kernels/block_squares_kernels.hpp"
#include "norm_digests.hpp"
#include "npu_train/device/threads.hpp"
#include "npu_train/kernels/block_squares.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

template <class T>
double square_of(T x) {
  if constexpr (sizeof(T) == 8) return x * x;
  if constexpr (sizeof(T) != 8) return static_cast<double>(widen(x)) * static_cast<double>(widen(x));
}

// The sum as the header defines it.
template <class T>
double block_sum(const T* x) {
  volatile double sums[64];  // volatile, so that no compiler fuses a square and an addition
  for (int i = 0; i < 64; ++i) sums[i] = square_of(x[i]);
  for (int half = 32; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
  return sums[0];
}

template <class T>
std::vector<T> drawn(int64_t n) {
  Numbers numbers(7);
  if constexpr (sizeof(T) == 8) {
    std::vector<T> out;
    const auto a = draw<float>(numbers, n), b = draw<float>(numbers, n);
    for (size_t i = 0; i < a.size(); ++i) out.push_back(static_cast<double>(a[i]) + 1e-9 * static_cast<double>(b[i]));
    return out;
  } else {
    return draw<T>(numbers, n);
  }
}

template <class T>
void check_kernels() {
  constexpr int64_t kBlocks = 300;
  const auto x = drawn<T>(kBlocks * 64 + 1);
  const auto sets = all_instruction_sets(npu_train::detail::square_kernels);
  for (const auto& [name, kernels] : sets)
    for (const int64_t offset : {0, 1}) {
      CAPTURE(name);
      std::vector<double> sums(kBlocks);
      (*kernels)(x.data() + offset, kBlocks, sums.data());
      for (int64_t b = 0; b < kBlocks; ++b) REQUIRE(sums[static_cast<size_t>(b)] == block_sum(x.data() + offset + 64 * b));
    }
}

at::Tensor random_numbers(int64_t n) {
  const auto x = drawn<float>(n);
  return at::tensor(x);
}

double root(const std::vector<at::Tensor>& tensors) { return sum_of_squares(tensors).root(); }

}  // namespace

TEST_CASE("every instruction set of this machine adds the squares of a block in the order that is defined") {
  check_kernels<float>();
  check_kernels<c10::BFloat16>();
  check_kernels<c10::Half>();
  check_kernels<double>();
}

TEST_CASE("the sum is that of the blocks, whatever the dtype, with zeros behind the last number") {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const int64_t n : {1, 63, 64, 65, 1000, 300'000}) {
      CAPTURE(n);
      const auto x = random_numbers(n).to(dtype);
      const auto padded = at::cat({x, at::zeros({(n + 63) / 64 * 64 - n}, x.options())}).to(at::kDouble);
      ExactSum expected;
      for (int64_t i = 0; i < padded.numel(); i += 64) expected.add(block_sum(padded.const_data_ptr<double>() + i));
      CHECK(sum_of_squares({x}).limbs() == expected.limbs());
    }
  CHECK(sum_of_squares({}).value() == 0);
  CHECK(sum_of_squares({at::zeros({0})}).value() == 0);
  CHECK(sum_of_squares({at::zeros({100}), at::zeros({100}, at::kDouble)}).value() == 0);
}

TEST_CASE("neither threads nor the order of tensors nor cuts between blocks matter") {
  const auto x = random_numbers(700'001);
  const auto expected = [&] {
    const ThreadCount one(1);
    return sum_of_squares({x}).limbs();
  }();
  std::vector<at::Tensor> pieces;
  for (int64_t first = 0, count = 64; first < x.numel(); first += count, count = std::min(2 * count, int64_t{64 * 700}))
    pieces.push_back(x.narrow(0, first, std::min(count, x.numel() - first)));
  for (const int threads : {1, 2, 3}) {
    const ThreadCount count(threads);
    CHECK(sum_of_squares({x}).limbs() == expected);
    CHECK(sum_of_squares(pieces).limbs() == expected);
    std::reverse(pieces.begin(), pieces.end());
    CHECK(sum_of_squares(pieces).limbs() == expected);
  }
}

TEST_CASE("squares of fp64 overflow and vanish nowhere; in fp32 every number counts") {
  for (const double x : {1e200, 8e306, 1e-150, 1e-160, 1e-200, 1e-300, 1.0}) {
    CAPTURE(x);
    for (const int64_t n : {1, 4, 64, 400})
      CHECK(root({at::full({n}, x, at::kDouble)}) / x == doctest::Approx(std::sqrt(static_cast<double>(n))).epsilon(1e-14));
    CHECK(root({at::full({3}, x, at::kDouble), at::full({1}, -x, at::kDouble)}) / x == doctest::Approx(2).epsilon(1e-14));
  }
  const double smallest = std::numeric_limits<double>::denorm_min();
  CHECK(root({at::full({4}, smallest, at::kDouble)}) == 2 * smallest);
  CHECK(root({at::tensor({3e200, 4e200, 1.0, 1e-300}, at::kDouble)}) / 5e200 == doctest::Approx(1).epsilon(1e-15));
  CHECK(root({at::full({9}, 1e-45F)}) == 3 * 0x1p-149);
  CHECK(root({at::full({4}, 3e38F)}) == 2 * static_cast<double>(3e38F));
  CHECK(root({at::full({4}, 65504.0, at::kHalf)}) == 2 * 65504.0);
}

TEST_CASE("infinity and NaN, wherever they are in a block") {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    auto x = at::ones({200}, dtype);
    x[70] = -kInf;
    CHECK(root({x}) == kInf);
    for (const int64_t place : {66, 100, 199}) {
      auto y = x.clone();
      y[place] = kNaN;
      CHECK(std::isnan(root({y})));
    }
  }
}

TEST_CASE("other tensors are an Error") {
  CHECK(error_of([] { sum_of_squares({at::ones({3}, at::kLong)}); }).kind() == ErrorKind::Usage);
  CHECK(error_of([] { sum_of_squares({at::ones({3, 4}).t()}); }).kind() == ErrorKind::Usage);
}
