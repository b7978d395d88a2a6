/// Digests of the block kernels' results on fixed numbers: of the widened values, of one tensor's sums, and of a pair's sums.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernel_bits.hpp"
#include "npu_train/kernels/rounding.hpp"
#include "tools/align/block_kernels.hpp"

namespace npu_train::testing {

/// Returns lengths around multiples of the lane counts.
inline std::vector<int64_t> block_lengths() {
  std::vector<int64_t> out;
  for (int64_t n = 1; n <= 70; ++n) out.push_back(n);
  out.insert(out.end(), {100, 127, 128, 1000, detail::kBlock - 1, detail::kBlock});
  return out;
}

/// Draws a value of the dtype S. It is never NaN, whose widening differs between machines.
template <class S>
S draw_one(Numbers& numbers) {
  uint64_t bits = numbers.bits();
  bits = bits << 33 ^ numbers.bits();
  const float value = numbers.next();
  if constexpr (std::is_same_v<S, c10::Half>) {
    if (bits % 8 == 0) return {static_cast<uint16_t>((bits >> 20) % 0x7c01U), c10::Half::from_bits()};  // also subnormal numbers and inf
    return round_to<S>(value);
  } else if constexpr (std::is_same_v<S, c10::BFloat16>) {
    return round_to<S>(value);
  } else if constexpr (std::is_floating_point_v<S>) {
    return static_cast<S>(value) * static_cast<S>(1 + 0x1p-30 * static_cast<double>(bits & 0xffffU));
  } else if constexpr (std::is_same_v<S, bool>) {
    return bits % 2 == 1;
  } else {
    return static_cast<S>(bits);
  }
}

template <class T>
std::vector<T> draw_values(Numbers& numbers, int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  for (auto& x : out) x = draw_one<T>(numbers);
  return out;
}

template <class S, class T>
void add_widened(Digest& digest, const detail::BlockKernels<T>& k, at::ScalarType dtype) {
  Numbers numbers(static_cast<uint64_t>(dtype));
  for (const int64_t n : block_lengths())
    for (const size_t offset : {0, 1}) {
      std::vector<uint64_t> memory(static_cast<size_t>(n) + 1);
      char* data = reinterpret_cast<char*>(memory.data()) + offset;
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        const S value = draw_one<S>(numbers);
        std::memcpy(data + i * sizeof(S), &value, sizeof(S));
      }
      std::vector<T> buffer(static_cast<size_t>(n));
      digest.add(k.widened(dtype, data, n, buffer.data()), static_cast<size_t>(n));
    }
}

template <class T>
uint64_t widened_digest(const detail::BlockKernels<T>& k) {
  Digest digest;
  add_widened<float>(digest, k, at::kFloat);
  add_widened<c10::BFloat16>(digest, k, at::kBFloat16);
  add_widened<c10::Half>(digest, k, at::kHalf);
  if constexpr (std::is_same_v<T, double>) {
    add_widened<double>(digest, k, at::kDouble);
    add_widened<int64_t>(digest, k, at::kLong);
    add_widened<int32_t>(digest, k, at::kInt);
    add_widened<int16_t>(digest, k, at::kShort);
    add_widened<int8_t>(digest, k, at::kChar);
    add_widened<uint64_t>(digest, k, at::kUInt64);
    add_widened<uint32_t>(digest, k, at::kUInt32);
    add_widened<uint16_t>(digest, k, at::kUInt16);
    add_widened<uint8_t>(digest, k, at::kByte);
    add_widened<bool>(digest, k, at::kBool);
  }
  return digest.value();
}

/// Adds the results for `x` to the digest. If `x` has special values (inf, NaN), the sums are left out, since they are infinite or NaN, and
/// the bits of NaN differ between machines.
template <class T>
void add_values(Digest& digest, const detail::BlockKernels<T>& k, const std::vector<T>& x, bool special) {
  const auto sums = k.values(x.data(), static_cast<int64_t>(x.size()));
  const std::vector<double> of_all = {sums.sum, sums.squares}, of_comparable = {sums.max, sums.min};
  if (!special) digest.add(of_all);
  digest.add(of_comparable), digest.add(&sums.nan, 1), digest.add(&sums.inf, 1);
}

template <class T>
uint64_t values_digest(const detail::BlockKernels<T>& k) {
  constexpr T kInf = std::numeric_limits<T>::infinity(), kNaN = std::numeric_limits<T>::quiet_NaN();
  Digest digest;
  for (const int64_t n : block_lengths()) {
    Numbers numbers(static_cast<uint64_t>(n));
    auto x = draw_values<T>(numbers, n);
    add_values(digest, k, x, false);
    for (auto& value : x) value = value < 0 ? T{-0.0} : T{0};
    add_values(digest, k, x, false);  // shows which of the zeros max and min take
    x = draw_values<T>(numbers, n);
    for (auto& value : x)
      if (const uint32_t kind = numbers.bits() % 16; kind < 4) value = kind == 0 ? kInf : kind == 1 ? -kInf : kNaN;
    x[numbers.bits() % x.size()] = kNaN;
    add_values(digest, k, x, true);
  }
  return digest.value();
}

template <class T>
uint64_t errors_digest(const detail::BlockKernels<T>& k) {
  Digest digest;
  for (const int64_t n : block_lengths())
    for (const auto grid : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kInt}) {
      Numbers numbers(static_cast<uint64_t>(n) * 100 + static_cast<uint64_t>(grid));
      const auto a = draw_values<T>(numbers, n);
      auto b = a;
      for (auto& x : b) {  // near for most elements, equal for some, 0 for some
        const uint32_t kind = numbers.bits() % 16;
        const auto factor = static_cast<T>(1 + 0x1p-20 * static_cast<double>(numbers.bits() % 10000U)),
                   other = static_cast<T>(numbers.next());
        x = kind == 0 ? 0 : kind == 1 ? other : kind < 12 ? x * factor : x;
      }
      const auto sums = k.errors(a.data(), b.data(), n, 0x1p-10, grid);
      digest.add(std::vector<double>{sums.dot, sums.squares, sums.abs, sums.max_abs, sums.max_relative, sums.ulp, sums.max_ulp});
      digest.add(std::vector<int64_t>{sums.one_thousandth, sums.five_thousandth});
    }
  return digest.value();
}

/// The constants were recorded with the loops of an earlier version, which GCC 12 vectorized: a comparison gives the same bits as in that
/// version.
inline bool has_recorded_bits(const detail::BlockKernels<float>& k) {
  return widened_digest(k) == 0x7db9ec8ee70d529dULL && values_digest(k) == 0x451b3ca274f0a000ULL &&
         errors_digest(k) == 0x1857e581e89cfe39ULL;
}
inline bool has_recorded_bits(const detail::BlockKernels<double>& k) {
  return widened_digest(k) == 0x1208e7c39057fad3ULL && values_digest(k) == 0x4a39db1028419ce6ULL &&
         errors_digest(k) == 0xc7e288b15cde401bULL;
}

}  // namespace npu_train::testing
