#include "testing.hpp"

#include "npu_train/tools/align/pair_metrics.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "npu_train/tools/align/statistics.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::kInf;

namespace {

std::vector<double> doubles(const at::Tensor& t) {
  const auto values = t.to(at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

// Returns every finite number of a 16-bit dtype and the infinities in order, with one entry for -0 and 0.
std::vector<double> numbers_of(at::ScalarType type) {
  auto all = doubles(at::arange(-32768, 32768).to(at::kShort).view(type));
  std::erase_if(all, [](double x) { return std::isnan(x); });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// Counts distances by a search in the list of all numbers of the dtype.
std::vector<double> ulp_distances(const at::Tensor& a, const at::Tensor& b, at::ScalarType grid) {
  const auto numbers = numbers_of(grid);
  const auto x = doubles(a.to(at::kFloat).to(grid)), y = doubles(b.to(at::kFloat).to(grid));
  const auto place = [&](double value) { return std::lower_bound(numbers.begin(), numbers.end(), value) - numbers.begin(); };
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    if (!std::isnan(x[i]) && !std::isnan(y[i])) out[i] = std::fabs(static_cast<double>(place(x[i]) - place(y[i])));
  return out;
}

PairMetrics reference_metrics(const at::Tensor& ta, const at::Tensor& tb, double epsilon) {
  const auto a = doubles(ta), b = doubles(tb);
  PairMetrics out;
  out.elements = static_cast<int64_t>(a.size());
  long double dot = 0, aa = 0, bb = 0, dd = 0, sum = 0;
  int64_t one = 0, five = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double x = a[i], y = b[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (!(x == y || (std::isnan(x) && std::isnan(y)))) {
        ++out.nonfinite_mismatch;
        continue;
      }
      x = y = 0;
    }
    const double d = x - y, relative = y == 0 ? std::fabs(d / epsilon) : std::fabs(d / y);
    dot += static_cast<long double>(x) * y;
    aa += static_cast<long double>(x) * x;
    bb += static_cast<long double>(y) * y;
    dd += static_cast<long double>(d) * d;
    sum += std::fabs(d);
    out.max_abs = std::max(out.max_abs, std::fabs(d));
    out.max_relative = std::max(out.max_relative, relative);
    one += relative < 0.001;
    five += relative < 0.005;
  }
  const long double compared = static_cast<long double>(out.elements - out.nonfinite_mismatch);
  out.norm_a = static_cast<double>(std::sqrt(aa));
  out.norm_b = static_cast<double>(std::sqrt(bb));
  out.cosine = static_cast<double>(dot / std::sqrt(aa) / std::sqrt(bb));
  out.euclidean = static_cast<double>(std::sqrt(dd));
  out.mean_abs = static_cast<double>(sum / compared);
  out.rmse = static_cast<double>(std::sqrt(dd / compared));
  out.norm_ratio = out.norm_a / out.norm_b;
  out.relative_norm = out.euclidean / out.norm_b;
  out.one_thousandth = static_cast<double>(one) / static_cast<double>(out.elements);
  out.five_thousandth = static_cast<double>(five) / static_cast<double>(out.elements);
  return out;
}

bool agrees(double got, double wanted, double relative = 1e-10) {
  if (!std::isfinite(wanted)) return std::isnan(wanted) ? std::isnan(got) : got == wanted;
  return std::fabs(got - wanted) <= relative * std::fabs(wanted);
}

void expect_side(const at::Tensor& t, double max, double min, double mean, int64_t nan, int64_t inf) {
  const auto wanted = statistics_of(t.to(at::kDouble));  // statistics_of() has its own test
  CHECK(agrees(max, *wanted.max, 0));
  CHECK(agrees(min, *wanted.min, 0));
  CHECK((agrees(mean, *wanted.mean) || std::fabs(mean - *wanted.mean) <= 1e-12 * (*wanted.max - *wanted.min)));
  CHECK(nan == wanted.nan);
  CHECK(inf == wanted.inf);
}

void expect_metrics(const PairMetrics& got, const at::Tensor& a, const at::Tensor& b, double epsilon) {
  const auto wanted = reference_metrics(a, b, epsilon);
  CAPTURE(a.toString());
  CAPTURE(b.toString());
  CAPTURE(a.numel());
  CHECK(got.elements == wanted.elements);
  CHECK(agrees(got.cosine, wanted.cosine));
  CHECK(agrees(got.euclidean, wanted.euclidean));
  CHECK(agrees(got.max_abs, wanted.max_abs));
  CHECK(agrees(got.mean_abs, wanted.mean_abs));
  CHECK(agrees(got.rmse, wanted.rmse));
  CHECK(agrees(got.max_relative, wanted.max_relative));
  CHECK(got.one_thousandth == wanted.one_thousandth);
  CHECK(got.five_thousandth == wanted.five_thousandth);
  CHECK(agrees(got.norm_a, wanted.norm_a));
  CHECK(agrees(got.norm_b, wanted.norm_b));
  CHECK(agrees(got.norm_ratio, wanted.norm_ratio));
  CHECK(agrees(got.relative_norm, wanted.relative_norm));
  CHECK(got.nonfinite_mismatch == wanted.nonfinite_mismatch);
  expect_side(a, got.max_a, got.min_a, got.mean_a, got.nan_a, got.inf_a);
  expect_side(b, got.max_b, got.min_b, got.mean_b, got.nan_b, got.inf_b);
}

double epsilon_of(at::ScalarType a, at::ScalarType b) {
  for (const auto& [type, epsilon] :
       std::vector<std::pair<at::ScalarType, double>>{{at::kBFloat16, 0x1p-7}, {at::kHalf, 0x1p-10}, {at::kFloat, 0x1p-23}})
    if (a == type || b == type) return epsilon;
  return 0x1p-52;
}

// Returns a pair like that of two runs, with zeros, a long equal stretch and errors of all sizes.
std::pair<at::Tensor, at::Tensor> two_runs(int64_t n) {
  const auto a = at::where(at::rand({n}) < 0.2, at::zeros({n}), at::randn({n}) * 3);
  auto b = a * (1 + at::randn({n}) * at::rand({n}).pow(4) * 0.1) + (at::rand({n}) < 0.01) * 1e-3;
  if (n > 9000) b.slice(0, 3000, 8000).copy_(a.slice(0, 3000, 8000));
  return {a, b};
}

PairMetrics in_pieces(const at::Tensor& a, const at::Tensor& b, int64_t piece, bool with_crc = false) {
  PairAccumulator pair(a.scalar_type(), b.scalar_type(), with_crc);
  const auto *x = static_cast<const char*>(a.const_data_ptr()), *y = static_cast<const char*>(b.const_data_ptr());
  for (int64_t i = 0; i < a.numel(); i += piece)
    pair.add(x + i * static_cast<int64_t>(a.element_size()), y + i * static_cast<int64_t>(b.element_size()),
             std::min(piece, a.numel() - i));
  return pair.result();
}

PairMetrics of_floats(const std::vector<float>& a, const std::vector<float>& b) {
  PairAccumulator pair(at::kFloat, at::kFloat);
  pair.add(a.data(), b.data(), static_cast<int64_t>(a.size()));
  return pair.result();
}

}  // namespace

TEST_CASE("any two dtypes against a straightforward reference") {
  at::manual_seed(2);
  const auto [a, b] = two_runs(20'001);
  const std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong,  at::kInt,
                                             at::kShort, at::kChar,     at::kByte, at::kBool,   at::kUInt16};
  for (const auto type_a : types)
    for (const auto type_b : types) {
      // Unsigned dtypes get no negative values, since the result of that cast is undefined.
      const bool positive = type_a == at::kByte || type_b == at::kByte || type_a == at::kUInt16 || type_b == at::kUInt16;
      const auto x = (positive ? a.abs() : a).to(type_a), y = (positive ? b.abs() : b).to(type_b);
      const auto got = compare_tensors(x, y);
      expect_metrics(got, x, y, epsilon_of(type_a, type_b));
      CHECK_FALSE((got.identical && type_a != type_b));
      CHECK_FALSE(got.crc_a);
      CHECK(std::isnan(got.max_ulp) == (!at::isFloatingType(type_a) && !at::isFloatingType(type_b)));
    }
}

TEST_CASE("every length around the borders of lanes, blocks and chunks, in pieces of any size") {
  for (const int64_t n : {1, 2, 15, 16, 17, 2047, 2048, 2049, 65535, 65536, 65537, 140'001}) {
    const auto [a, b] = two_runs(n);
    const auto bf16 = b.to(at::kBFloat16);
    const auto x = at::where(a == 0, at::ones_like(a), a);  // the norm is never 0, even for one element
    for (const int64_t piece : {int64_t{1} << 40, int64_t{50'000}, int64_t{777}}) {
      expect_metrics(in_pieces(x, b + 1, piece), x, b + 1, 0x1p-23);
      expect_metrics(in_pieces(x, bf16 + 1, piece), x, bf16 + 1, 0x1p-7);
    }
  }
}

TEST_CASE("NaN and inf") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto [a, b] = two_runs(70'001);
  const std::vector<std::pair<float, float>> kinds = {{nan, nan}, {inf, inf}, {-inf, -inf}, {inf, -inf},
                                                      {nan, inf}, {nan, 2.F}, {-1.F, inf}};
  for (const auto type_a : {at::kFloat, at::kHalf, at::kDouble})
    for (const auto type_b : {at::kFloat, at::kBFloat16}) {
      auto x = a.clone(), y = b.clone();
      for (size_t k = 0; k < kinds.size(); ++k) {
        for (const int64_t i : {0, 2047, 4000, 65536, 70'000 - 7}) {
          x[i + static_cast<int64_t>(k)] = kinds[k].first;
          y[i + static_cast<int64_t>(k)] = kinds[k].second;
        }
        expect_metrics(compare_tensors(x.to(type_a), y.to(type_b)), x.to(type_a), y.to(type_b), epsilon_of(type_a, type_b));
      }
      CHECK(compare_tensors(x.to(type_a), y.to(type_b)).nonfinite_mismatch == 20);
    }
  // every bit is equal
  auto x = a.clone();
  x[5] = nan;
  x[6] = -inf;
  const auto same = compare_tensors(x, x.clone());
  CHECK((same.identical && same.nonfinite_mismatch == 0 && same.nan_b == 1 && same.inf_b == 1 && same.one_thousandth == 1));
  CHECK((same.euclidean == 0 && agrees(same.cosine, 1) && std::isnan(same.max_a)));
  CHECK(agrees(same.norm_a, reference_metrics(x, x, 1).norm_a));
  // no element is left to compare
  const auto none = of_floats({nan, inf}, {1, -inf});
  CHECK((none.nonfinite_mismatch == 2 && none.mean_abs == 0 && none.rmse == 0 && none.one_thousandth == 0 && none.cosine == 1));
}

TEST_CASE("zeros, signs, empty") {
  const auto zeros = of_floats({0, -0.F, 0}, {0, 0, -0.F});
  CHECK((zeros.cosine == 1 && zeros.max_abs == 0 && zeros.one_thousandth == 1 && zeros.max_ulp == 0 && zeros.norm_ratio == 1));
  CHECK_FALSE(zeros.identical);
  const auto one_zero = of_floats({0, 0}, {1, 2});
  CHECK((std::isnan(one_zero.cosine) && one_zero.norm_ratio == 0 && one_zero.max_relative == 1 && one_zero.relative_norm == 1));
  const auto other_zero = of_floats({1, 0x1p-33F}, {0, 0});
  CHECK((std::isnan(other_zero.cosine) && other_zero.norm_ratio == kInf && other_zero.relative_norm == kInf));
  CHECK((other_zero.max_relative == 0x1p23 && other_zero.one_thousandth == 0.5));  // 2^-33 over 2^-23 is below a thousandth
  CHECK(of_floats({1, 2}, {-1, -2}).cosine == -1);
  CHECK(of_floats({3}, {4}).cosine == 1);

  for (const auto& empty :
       {PairAccumulator(at::kFloat, at::kFloat, true).result(), compare_tensors(at::empty({0}), at::empty({2, 0}), true)}) {
    CHECK((empty.elements == 0 && empty.identical && empty.cosine == 1 && empty.euclidean == 0 && empty.one_thousandth == 1));
    CHECK((std::isnan(empty.max_a) && std::isnan(empty.mean_b) && empty.crc_a == 0U && empty.crc_b == 0U));
  }
}

TEST_CASE("the largest, the smallest and nearly equal numbers") {
  const auto noise = at::randn({5000}).abs() + 0.1;
  for (const double scale : {1e30, 5e37, 1e-30, 1e-38, 1e-41}) {
    const auto a = noise * scale, b = (noise * 1.01) * scale;
    auto got = compare_tensors(a, b);
    auto wanted = reference_metrics(a, b, 0x1p-23);
    CAPTURE(scale);
    if (scale < 1e-20) wanted.cosine = 1;  // by definition
    CHECK(agrees(got.cosine, wanted.cosine));
    CHECK(agrees(got.euclidean, wanted.euclidean));
    CHECK(agrees(got.max_relative, wanted.max_relative));
    CHECK(agrees(got.norm_b, wanted.norm_b));
    CHECK(got.five_thousandth == wanted.five_thousandth);
  }
  const float most = std::numeric_limits<float>::max();
  CHECK(of_floats({most}, {-most}).max_abs == 2.0 * static_cast<double>(most));
  auto a = at::randn({20'000}), b = a.clone();
  b[12'345] += 0x1p-20F;
  expect_metrics(compare_tensors(a, b), a, b, 0x1p-23);
}

TEST_CASE("ULP are counted in the coarser dtype") {
  const auto [a, b] = two_runs(20'000);
  const auto wild = at::randn({20'000}) * at::randn({20'000}).mul(20).exp2();  // of every magnitude and sign
  for (const auto grid : {at::kHalf, at::kBFloat16})
    for (const auto other : {grid, at::kFloat, at::kDouble})
      for (const auto& [x, y] : {std::pair{a, b}, std::pair{a, wild}, std::pair{wild * 1e-4, wild}}) {
        const auto left = x.to(other), right = y.to(grid);
        if (!std::isfinite(left.to(at::kDouble).abs().max().item<double>())) continue;
        const auto wanted = ulp_distances(left, right, grid), finite = doubles(right);  // inf on one side alone is not compared
        double most = 0, sum = 0, compared = 0;
        for (size_t i = 0; i < wanted.size(); ++i) {
          if (!std::isfinite(finite[i])) continue;
          most = std::max(most, wanted[i]);
          sum += wanted[i];
          ++compared;
        }
        for (const auto& got : {compare_tensors(left, right), compare_tensors(right, left)}) {
          CHECK(got.max_ulp == most);
          CHECK(agrees(got.mean_ulp, sum / compared));
        }
      }

  CHECK(of_floats({1, 1, 1}, {1, std::nextafter(1.F, 2.F), std::nextafter(1.F, 0.F)}).max_ulp == 1);
  float far = -3e-45F;
  for (int step = 0; step < 1000; ++step) far = std::nextafter(far, 1.F);
  CHECK(of_floats({-3e-45F, 0}, {far, 0}).max_ulp == 1000);
  CHECK(of_floats({-3e-45F, 0}, {far, 0}).mean_ulp == 500);
  const float most = std::numeric_limits<float>::max();
  CHECK(of_floats({-most}, {most}).max_ulp == 2.0 * 0x7f7fffff);
  const std::vector<double> x = {1, -0x1p-1074}, y = {1 + 0x1p-50, 0x1p-1074};
  PairAccumulator pair(at::kDouble, at::kDouble);
  pair.add(x.data(), y.data(), 2);
  CHECK((pair.result().max_ulp == 4 && pair.result().mean_ulp == 3));
}

TEST_CASE("identical is a matter of bits, and CRC-32 of the own bytes") {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong, at::kBool}) {
    const auto t = (at::randn({140'001}) * 5).to(type);
    const auto same = compare_tensors(t, t.clone(), true);
    CHECK((same.identical && same.crc_a == crc32_of(t) && same.crc_b == same.crc_a));
    CHECK((same.max_abs == 0 && same.one_thousandth == 1 && same.five_thousandth == 1));
    auto other = t.clone();
    other[140'000] = other[140'000].logical_not();
    const auto differs = compare_tensors(t, other, true);
    CHECK((!differs.identical && differs.crc_a == same.crc_a && differs.crc_b == crc32_of(other) && differs.crc_b != same.crc_b));
    for (const int64_t piece : {int64_t{1000}, int64_t{65536}, int64_t{100'000}}) {
      const auto pieces = in_pieces(t, other, piece, true);
      CHECK((pieces.crc_a == differs.crc_a && pieces.crc_b == differs.crc_b && !pieces.identical));
    }
  }
  CHECK_FALSE(compare_tensors(at::ones({3}, at::kShort), at::ones({3}, at::kInt)).identical);
  CHECK_FALSE(compare_tensors(at::ones({3}, at::kShort), at::full({3}, 1, at::kShort).view(at::kHalf)).identical);
}

TEST_CASE("what is merged counts as added behind") {
  const auto [a, b] = two_runs(150'000);
  const auto *x = a.const_data_ptr<float>(), *y = b.const_data_ptr<float>();
  std::vector<PairAccumulator> parts;
  for (int i = 0; i < 3; ++i) parts.emplace_back(at::kFloat, at::kFloat, true);
  parts[2].add(x + 120'000, y + 120'000, 30'000);
  parts[0].add(x, y, 50'000);
  parts[1].add(x + 50'000, y + 50'000, 70'000);
  PairAccumulator whole = std::move(parts[0]);
  whole.merge(parts[1]);
  whole.merge(parts[2]);
  expect_metrics(whole.result(), a, b, 0x1p-23);
  CHECK((whole.result().crc_a == crc32_of(a) && whole.result().crc_b == crc32_of(b)));
  // the order of the parts changes the checksum of the tensor, but not the sums
  parts[2].merge(parts[1]);
  PairAccumulator behind(at::kFloat, at::kFloat, true);
  behind.add(x + 50'000, y + 50'000, 100'000);
  CHECK(parts[2].result().crc_a != behind.result().crc_a);
  CHECK(agrees(parts[2].result().euclidean, behind.result().euclidean));
  PairAccumulator twice(at::kFloat, at::kFloat, true);
  twice.add(x, y, 1000);
  twice.merge(twice);  // with itself
  CHECK((twice.result().elements == 2000 && twice.result().crc_a == crc32_of(at::stack({a.slice(0, 0, 1000), a.slice(0, 0, 1000)}))));

  CHECK(error_of([&] { whole.merge(PairAccumulator(at::kFloat, at::kHalf, true)); }).kind() == ErrorKind::Usage);
  CHECK(has(error_of([&] { whole.merge(PairAccumulator(at::kFloat, at::kFloat)); }).what(),
            "without CRC; it must be for Float and Float with CRC"));
}

TEST_CASE("neither threads nor addresses change a bit") {
  const auto [a, b] = two_runs(500'001);
  const auto bf16 = b.to(at::kBFloat16);
  const auto bits = [](const PairMetrics& m) {
    std::vector<uint64_t> out;
    for (const double value : {m.cosine, m.euclidean, m.mean_abs, m.norm_a, m.norm_b, m.mean_a, m.mean_b, m.mean_ulp, m.max_relative})
      out.push_back(std::bit_cast<uint64_t>(value));
    return out;
  };
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto wanted = bits(compare_tensors(a, bf16));
  for (const int threads : {2, 3, 5}) {
    at::set_num_threads(threads);
    CHECK((bits(compare_tensors(a, bf16)) == wanted));
  }
  at::set_num_threads(before);
  std::vector<char> x(a.nbytes() + 1), y(bf16.nbytes() + 1);
  std::memcpy(x.data() + 1, a.const_data_ptr(), a.nbytes());
  std::memcpy(y.data() + 1, bf16.const_data_ptr(), bf16.nbytes());
  PairAccumulator pair(at::kFloat, at::kBFloat16);
  pair.add(x.data() + 1, y.data() + 1, a.numel());
  CHECK((bits(pair.result()) == wanted));
}

TEST_CASE("tensors of any layout are compared element by element") {
  const auto a = at::randn({3, 5, 7, 11}), b = a + at::randn({3, 5, 7, 11}) * 1e-3;
  const auto last = [](const at::Tensor& t) { return t.contiguous(at::MemoryFormat::ChannelsLast); };
  expect_metrics(compare_tensors(a, last(b)), a, b, 0x1p-23);
  expect_metrics(compare_tensors(last(a), last(b)), a, b, 0x1p-23);
  expect_metrics(compare_tensors(a.transpose(1, 3), b.transpose(1, 3)), a, b, 0x1p-23);
  expect_metrics(compare_tensors(a.slice(3, 0, 11, 2), b.slice(3, 0, 11, 2)), a.slice(3, 0, 11, 2), b.slice(3, 0, 11, 2), 0x1p-23);
  expect_metrics(compare_tensors(a.flatten(), b), a, b, 0x1p-23);
  CHECK((compare_tensors(last(a), last(b), true).crc_a == crc32_of(a)));
}

TEST_CASE("what cannot be compared is refused") {
  const auto one = at::ones({2});
  for (const auto& other : {at::Tensor(), at::ones({3}), one.to_sparse(), at::complex(one, one)})
    CHECK(error_of([&] { compare_tensors(one, other); }).kind() == ErrorKind::Usage);
  CHECK(has(error_of([&] { compare_tensors(one, at::ones({3})); }).what(), "2 and 3 elements"));
  CHECK(has(error_of([] { PairAccumulator(at::kFloat, at::kComplexFloat); }).what(), "ComplexFloat"));
  CHECK(error_of([] { PairAccumulator(at::kQInt8, at::kFloat); }).kind() == ErrorKind::Usage);
  PairAccumulator pair(at::kFloat, at::kFloat);
  CHECK(error_of([&] { pair.add(one.const_data_ptr(), nullptr, 1); }).kind() == ErrorKind::Usage);
  CHECK(error_of([&] { pair.add(one.const_data_ptr(), one.const_data_ptr(), -1); }).kind() == ErrorKind::Usage);
  CHECK_NOTHROW(pair.add(nullptr, nullptr, 0));
}
