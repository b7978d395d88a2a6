#include "testing.hpp"

#include "tools/align/moments.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/std.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "block_digests.hpp"
#include "device_under_test.hpp"
#include "instruction_sets.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::Moments, npu_train::detail::moments_of;

namespace {

bool close_to(double got, double wanted, double relative = 1e-12) {
  if (std::isnan(wanted) || std::isinf(wanted)) return std::isnan(wanted) ? std::isnan(got) : got == wanted;
  return std::abs(got - wanted) <= relative * std::max(std::abs(wanted), 1.0);
}

// Compares `got` with the definitions, which torch computes in fp64.
void expect_as_torch(const at::Tensor& t, const Moments& got, double relative = 1e-12) {
  CAPTURE(t.toString());
  CAPTURE(t.numel());
  const auto x = t.to(at::kDouble);
  CHECK(got.count == t.numel());
  CHECK(close_to(got.norm(), at::linalg_vector_norm(x).item<double>(), relative));
  CHECK(close_to(got.mean(), x.mean().item<double>(), relative));
  CHECK(close_to(got.deviation(), x.std(/*unbiased=*/false).item<double>(), relative * 1e3));
  CHECK(close_to(got.highest(), x.max().item<double>(), 0));
  CHECK(close_to(got.lowest(), x.min().item<double>(), 0));
  CHECK(got.zeros == (t == 0).sum().item<int64_t>());
  CHECK(got.nans == x.isnan().sum().item<int64_t>());
  CHECK(got.infs == x.isinf().sum().item<int64_t>());
}

at::Tensor with_zeros(int64_t n, at::ScalarType dtype) {
  auto t = at::randn({n}, at::kFloat) + 0.5;
  t.masked_fill_(at::randn({n}) > 1, 0);
  return t.to(dtype);
}

template <class T>
uint64_t moments_digest(const npu_train::detail::BlockKernels<T>& k) {
  Digest digest;
  for (const int64_t blocks : {1, 2, 5, 32}) {
    Numbers numbers(static_cast<uint64_t>(blocks));
    auto x = draw_values<T>(numbers, blocks * npu_train::detail::kSumBlock);
    for (auto& value : x)
      if (numbers.bits() % 8 == 0) value = 0;
    std::vector<double> sums(static_cast<size_t>(blocks)), squares(sums);
    const auto extremes = k.moments(x.data(), blocks, sums.data(), squares.data());
    digest.add(sums), digest.add(squares), digest.add(std::vector<double>{extremes.max, extremes.min}), digest.add(&extremes.zeros, 1);
  }
  return digest.value();
}

template <class T>
void check_all_sets() {
  const auto sets = all_instruction_sets(npu_train::detail::block_kernels<T>);
  for (const auto& [name, kernels] : sets) {
    CAPTURE(name);
    CHECK(moments_digest(*kernels) == moments_digest(*sets.front().second));
  }
}

}  // namespace

TEST_CASE("moments are those of torch for every length, dtype and layout") {
  for (const int64_t n : {1, 63, 64, 65, 2047, 2049, 65537, 200'001})
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const auto t = with_zeros(n, dtype);
      expect_as_torch(t, moments_of(t));
    }
  const auto image = with_zeros(4 * 3 * 10 * 10, at::kFloat).view({4, 3, 10, 10});
  expect_as_torch(image, moments_of(image.contiguous(at::MemoryFormat::ChannelsLast)));
  expect_as_torch(image, moments_of(image.transpose(1, 3)));
}

TEST_CASE("values that are not finite, constants, complex numbers and no elements") {
  auto t = with_zeros(3000, at::kFloat);
  t[2999] = kInf, t[5] = -kInf;
  auto got = moments_of(t);
  CHECK(got.infs == 2);
  CHECK(got.norm() == kInf);
  CHECK(got.highest() == kInf);
  CHECK(std::isnan(got.mean()));
  t[64] = kNaN;
  expect_as_torch(t, moments_of(t));
  CHECK(moments_of(at::full({1000}, 0.1)).deviation() == 0);
  CHECK(moments_of(at::full({1000}, 1e20)).norm() == doctest::Approx(std::sqrt(1000.0) * 1e20));
  CHECK(moments_of(at::complex(at::full({2}, 3.0), at::full({2}, 4.0))).mean() == 5);
  const auto none = moments_of(at::empty({0}));
  CHECK(none.count == 0);
  CHECK(std::isnan(none.norm()));
  CHECK(std::isnan(none.lowest()));
}

TEST_CASE("slices have together the bits of the complete tensor, also as text") {
  const auto t = at::randn({100'003}) * at::randn({100'003}).exp() * 1e3;
  const auto whole = moments_of(t);
  for (const int64_t cut : {64, 640, 65536, 99'968}) {
    const auto first = moments_of(t.narrow(0, 0, cut)), second = moments_of(t.narrow(0, cut, t.numel() - cut));
    auto joined = npu_train::detail::moments_of_text(to_text(second));
    joined.join(npu_train::detail::moments_of_text(to_text(first)));
    for (const auto value :
         {&Moments::norm, &Moments::mean, &Moments::deviation, &Moments::highest, &Moments::lowest, &Moments::zero_share})
      CHECK((joined.*value)() == (whole.*value)());
    CHECK(to_text(joined) == to_text(whole));
  }
  Moments none;
  none.join(npu_train::detail::moments_of_text(to_text(Moments())));
  CHECK(none.count == 0);
  for (const auto* text : {"", "1,2", "1,0,0,0,1,1,+3:4,+;", "1,0,0,0,1,1,+999:1;,+,", "1,x,0,0,1,1,+,+,"})
    CHECK(error_of([&] { npu_train::detail::moments_of_text(text); }).kind() == ErrorKind::Peer);
}

TEST_CASE("a row of a device is read as the same statistics, to the precision of fp32") {
  const auto device = device_under_test();
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto t = with_zeros(5000, dtype).view({50, 100});
    const auto row = npu_train::detail::moments_row(t.to(device.c10())).cpu();
    expect_as_torch(t, npu_train::detail::moments_of_row(row, t.numel()), 1e-3);
  }
  const auto row_of = [&](const at::Tensor& x) {
    return npu_train::detail::moments_of_row(npu_train::detail::moments_row(x.to(device.c10())).cpu(), x.numel());
  };
  for (const double value : {1.0, 0.1, -3e4, 0.0}) CHECK(row_of(at::full({1000, 33}, value, at::kFloat)).deviation() == 0);
  CHECK(std::isnan(row_of(at::empty({0})).norm()));
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {  // bf16 cannot represent the mean
    const auto narrow = (at::arange(4096) % 4 == 0).to(at::kFloat).mul(1.0 / 128).add(1).to(dtype);
    CHECK(row_of(narrow).deviation() == doctest::Approx(std::sqrt(3.0) / 4 / 128).epsilon(1e-4));
  }
  auto t = with_zeros(100, at::kFloat);
  t[3] = kNaN, t[4] = kInf;
  const auto got = npu_train::detail::moments_of_row(npu_train::detail::moments_row(t.to(device.c10())).cpu(), 100);
  CHECK(got.nans == 1);
  CHECK(got.infs == 1);
  CHECK(std::isnan(got.norm()));
}

TEST_CASE("every instruction set of this machine gives the same moments of blocks") {
  check_all_sets<float>();
  check_all_sets<double>();
}
