#include "testing.hpp"

#include "npu_train/tools/align/statistics.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "device_under_test.hpp"

using namespace npu_train;
using npu_train::testing::device_under_test;
using npu_train::testing::error_of;
using npu_train::testing::kInf;
using npu_train::testing::kNaN;

namespace {

struct Wanted {
  double max = -kInf, min = kInf, mean = 0, norm = 0;
  int64_t nan = 0, inf = 0;
};

Wanted straightforward(const at::Tensor& t) {
  const auto values = t.to(at::kDouble).contiguous();
  Wanted out;
  long double sum = 0, squares = 0;
  double special = 0;  // separate, since NaN in a long double is slow on most machines
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double x = values.const_data_ptr<double>()[i];
    out.nan += std::isnan(x);
    out.inf += std::isinf(x);
    out.max = std::max(out.max, x);
    out.min = std::min(out.min, x);
    if (!std::isfinite(x)) {
      special += x;
      continue;
    }
    sum += x;
    squares += static_cast<long double>(x) * x;
  }
  out.mean = static_cast<double>(sum / values.numel()) + special;
  out.norm = out.inf > 0 ? kInf : static_cast<double>(std::sqrt(squares));
  if (out.nan > 0) out.max = out.min = out.mean = out.norm = kNaN;
  return out;
}

bool near(std::optional<double> got, double wanted, double relative, double scale = 0) {
  if (!got) return false;
  if (std::isnan(wanted) || std::isinf(wanted)) return std::isnan(wanted) ? std::isnan(*got) : *got == wanted;
  return std::fabs(*got - wanted) <= relative * std::max(std::fabs(wanted), scale);
}

// Compares with straightforward sums. The mean is a small difference of large sums, so its error is relative to the values.
void expect_straightforward(const at::Tensor& t, double relative = 1e-12) {
  const auto got = statistics_of(t);
  const auto wanted = straightforward(t);
  CAPTURE(t.toString());
  CAPTURE(t.numel());
  const double scale = wanted.norm / std::sqrt(static_cast<double>(t.numel()));
  CHECK(near(got.max, wanted.max, 0));
  CHECK(near(got.min, wanted.min, 0));
  CHECK(near(got.mean, wanted.mean, relative, std::isfinite(scale) ? scale : 0));
  CHECK(near(got.norm, wanted.norm, relative));
  CHECK(got.nan == wanted.nan);
  CHECK(got.inf == wanted.inf);
}

bool same_bits(const TensorStatistics& a, const TensorStatistics& b) {
  const auto bits = [](const std::optional<double>& x) { return std::bit_cast<uint64_t>(x.value_or(-7)); };
  return bits(a.max) == bits(b.max) && bits(a.min) == bits(b.min) && bits(a.mean) == bits(b.mean) && bits(a.norm) == bits(b.norm);
}

void expect_rules(const std::function<TensorStatistics(const at::Tensor&)>& statistics) {
  const auto empty = statistics(at::empty({3, 0}));
  CHECK((!empty.max && !empty.min && !empty.mean && !empty.norm));

  const auto mixed = statistics(at::arange(2).to(at::kBool)), none = statistics(at::zeros({3}, at::kBool));
  CHECK((mixed.max == 1 && mixed.min == 0 && none.max == 0 && none.min == 0));
  CHECK((!mixed.mean && !mixed.norm));
  CHECK(statistics(at::ones({}, at::kBool)).min == 1);

  for (const double value : {-2.5, 0.0, 3.0, -kInf}) {
    const auto scalar = statistics(at::full({}, value, at::kFloat));
    CHECK((scalar.max == value && scalar.min == value && scalar.mean == value && scalar.norm == value));
  }
  const auto one = statistics(at::full({1}, -2.5, at::kFloat));
  CHECK((one.mean == -2.5 && one.norm == 2.5));

  const auto complex = statistics(at::complex(at::tensor({3.F, 0.F}), at::tensor({-4.F, 1.F})));
  CHECK((complex.max == 5 && complex.min == 1 && complex.mean == 3));
  CHECK_FALSE(complex.norm);

  const auto whole = statistics(at::arange(-2, 3));
  CHECK((whole.max == 2 && whole.min == -2 && whole.mean == 0));
  CHECK(near(whole.norm, std::sqrt(10.0), 1e-6));
}

uint32_t crc_bit_by_bit(const void* data, size_t bytes) {
  uint32_t crc = 0xffffffffU;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= static_cast<const uint8_t*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (0xedb88320U & (0U - (crc & 1U)));
  }
  return ~crc;
}

}  // namespace

TEST_CASE("the rules of what exists") {
  expect_rules([](const at::Tensor& t) { return statistics_of(t); });
}

TEST_CASE("every dtype and every length around the borders of lanes, blocks and chunks") {
  at::manual_seed(1);
  const auto noise = at::randn({150'001}) * 3 + 0.5;
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const int64_t n : {1, 2, 15, 16, 17, 2047, 2048, 2049, 65535, 65536, 65537, 150'001})
      expect_straightforward(noise.slice(0, 0, n).to(type));
  for (const auto type : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kUInt16, at::kUInt32, at::kUInt64})
    for (const int64_t n : {1, 17, 70'000}) expect_straightforward((noise.abs() * 9).slice(0, 0, n).to(type));
  const auto small = (noise * 4).slice(0, 0, 5000).to(at::kFloat8_e4m3fn);
  expect_straightforward(small);
}

TEST_CASE("any layout") {
  const auto t = at::randn({4, 6, 33, 35});
  const auto wanted = statistics_of(t);
  for (const auto& other : {t.contiguous(at::MemoryFormat::ChannelsLast), t.permute({2, 0, 3, 1}), t.transpose(0, 3).contiguous()}) {
    const auto got = statistics_of(other);
    CHECK((got.max == wanted.max && got.min == wanted.min));
    CHECK(near(got.mean, *wanted.mean, 1e-13, 1));
    CHECK(near(got.norm, *wanted.norm, 1e-13));
  }
  expect_straightforward(t.slice(3, 1, 30, 2));
  expect_straightforward(t.select(1, 3));
  expect_straightforward(t.slice(0, 0, 1).expand({5, 6, 33, 35}));
  expect_straightforward(t.as_strided({10, 8}, {4, 1}));
  CHECK(same_bits(statistics_of(t.to_sparse()), wanted));
  expect_straightforward(at::imag(at::complex(t, t).conj()));  // a view that negates on reading
  const auto quantised = at::quantize_per_tensor(t, 0.1, 3, at::kQInt8);
  CHECK(same_bits(statistics_of(quantised), statistics_of(quantised.dequantize())));
  auto parameter = t.clone().set_requires_grad(true);
  CHECK(same_bits(statistics_of(parameter), wanted));
}

TEST_CASE("NaN and inf everywhere") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto noise = at::randn({70'003});
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const int64_t at : {int64_t{0}, int64_t{15}, int64_t{16}, int64_t{2048}, int64_t{65535}, int64_t{65536}, int64_t{70'002}}) {
      auto t = noise.clone();
      t[at] = inf;
      expect_straightforward(t.to(type));
      t[70'003 - 1 - at] = -inf;
      expect_straightforward(t.to(type));
      t[at] = nan;
      expect_straightforward(t.to(type));
      const auto got = statistics_of(t.to(type));
      CHECK((std::isnan(*got.max) && std::isnan(*got.min) && std::isnan(*got.norm) && got.nan == 1));
    }
  expect_straightforward(at::full({3000}, nan));
  expect_straightforward(at::full({3000}, -inf));
}

TEST_CASE("the largest and the smallest numbers have right norms") {
  expect_straightforward(at::randn({5000}) * 1e30);
  expect_straightforward(at::full({100'000}, std::numeric_limits<float>::max()));
  expect_straightforward(at::full({5000}, -std::numeric_limits<float>::denorm_min()));
  expect_straightforward(at::randn({5000}) * 1e-40);
  expect_straightforward(at::full({5000}, 0x1p-24F, at::kHalf));
  expect_straightforward(at::full({70'000}, 65504, at::kHalf));
  expect_straightforward(at::full({5000}, 3e38F, at::kBFloat16));
  expect_straightforward(at::full({5000}, 1e150, at::kDouble));
  // In float32 the ones would be lost.
  auto t = at::ones({40'000});
  t[0] = 0x1p30F;
  expect_straightforward(t, 1e-15);
}

TEST_CASE("the number of threads changes no bit") {
  const int before = at::get_num_threads();
  for (const auto type : {at::kFloat, at::kHalf, at::kDouble}) {
    const auto t = at::randn({1'000'003}).to(type);
    at::set_num_threads(1);
    const auto wanted = statistics_of(t);
    const auto crc = crc32_of(t);
    for (const int threads : {2, 3, 5}) {
      at::set_num_threads(threads);
      CHECK(same_bits(statistics_of(t), wanted));
      CHECK(crc32_of(t) == crc);
    }
  }
  at::set_num_threads(before);
}

TEST_CASE("on a device the same rules, read at once") {
  const auto device = device_under_test().c10();
  const auto on_device = [&](const at::Tensor& t) { return device_statistics(t.to(device)); };
  expect_rules([&](const at::Tensor& t) { return from_device(on_device(t).cpu()); });

  std::vector<at::Tensor> tensors, rows;
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kInt}) tensors.push_back((at::randn({3, 17, 9, 9}) * 5).to(type));
  tensors.push_back(tensors[0].contiguous(at::MemoryFormat::ChannelsLast));
  tensors.push_back(at::full({5}, -kInf, at::kFloat));
  tensors.push_back(at::full({5}, kNaN, at::kFloat));
  tensors.push_back(at::empty({0}));
  for (const auto& t : tensors) {
    rows.push_back(on_device(t));
    CHECK((rows.back().scalar_type() == at::kFloat && rows.back().device().type() == device.type()));
    CHECK((rows.back().sizes() == at::IntArrayRef({4})));
  }
  const auto host = at::stack(rows).cpu();
  for (size_t i = 0; i + 1 < tensors.size(); ++i) {
    const auto got = from_device(host[static_cast<int64_t>(i)]);
    const auto wanted = straightforward(tensors[i]);
    CAPTURE(i);
    CHECK(near(got.max, wanted.max, 0));
    CHECK(near(got.min, wanted.min, 0));
    CHECK(near(got.mean, wanted.mean, 1e-5, 5));
    CHECK(near(got.norm, wanted.norm, 1e-5));
  }
  CHECK_FALSE(from_device(host[static_cast<int64_t>(tensors.size()) - 1]).max);
  CHECK(near(statistics_of(tensors[1].to(device)).norm, straightforward(tensors[1]).norm, 1e-5));
  CHECK(crc32_of(tensors[1].to(device)) == crc32_of(tensors[1]));
}

TEST_CASE("CRC-32 is that of the bytes in C order") {
  const std::string digits = "123456789";
  auto t = at::empty({9}, at::kByte);
  std::copy(digits.begin(), digits.end(), t.mutable_data_ptr<uint8_t>());
  CHECK(crc32_of(t) == 0xcbf43926U);
  CHECK(crc32_of(at::empty({0})) == 0);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kBool, at::kComplexFloat})
    for (const int64_t n : {1, 65536, 65537, 140'000}) {
      const auto values = (at::randn({n}) * 3).to(type);
      CHECK(crc32_of(values) == crc_bit_by_bit(values.const_data_ptr(), values.nbytes()));
    }
  const auto image = at::randn({2, 3, 5, 7});
  CHECK(crc32_of(image.contiguous(at::MemoryFormat::ChannelsLast)) == crc32_of(image));
  CHECK(crc32_of(image.transpose(0, 1)) == crc32_of(image.transpose(0, 1).contiguous()));
  CHECK(crc32_of(image.to(at::kBFloat16)) != crc32_of(image.to(at::kHalf)));
}

TEST_CASE("what has no values is refused") {
  const auto meta = at::empty({2}, at::TensorOptions().device(at::kMeta));
  for (const auto& t : {at::Tensor(), meta}) {
    CHECK(error_of([&] { statistics_of(t); }).kind() == ErrorKind::Usage);
    CHECK(error_of([&] { device_statistics(t); }).kind() == ErrorKind::Usage);
    CHECK(error_of([&] { crc32_of(t); }).kind() == ErrorKind::Usage);
  }
  CHECK(error_of([&] { crc32_of(at::ones({2}).to_sparse()); }).kind() == ErrorKind::Usage);
  for (const auto& row : {at::Tensor(), at::ones({5}), at::ones({4, 1}), at::ones({4}, at::kDouble)})
    CHECK(error_of([&] { from_device(row); }).kind() == ErrorKind::Usage);
}
