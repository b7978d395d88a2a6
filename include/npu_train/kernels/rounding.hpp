/// Conversion of bf16 and fp16 bit patterns to and from fp32, in plain integer arithmetic that compilers can vectorise for any machine.
///
/// Rounds to nearest, ties to even, as IEEE 754 and the units of all accelerators do: subnormals are kept, overflow gives inf, NaN stays
/// NaN.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cstdint>

namespace npu_train {

namespace detail {

/// Returns yes ? a : b without a branch. GCC would move float arithmetic behind a branch, and then not vectorise the loop.
inline uint32_t where(bool yes, uint32_t a, uint32_t b) { return b ^ ((a ^ b) & (0U - static_cast<uint32_t>(yes))); }

}  // namespace detail

inline float widen(float x) { return x; }

inline float widen(c10::BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.x) << 16); }

inline float widen(c10::Half x) {
  const uint32_t sign = (static_cast<uint32_t>(x.x) & 0x8000U) << 16, magnitude = (static_cast<uint32_t>(x.x) & 0x7fffU) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112F;  // moves the exponent's bias from 15 to 127; exact for subnormals, too
  const uint32_t special = detail::where(magnitude >= 0x0f800000U, 0x7f800000U, 0);  // inf and NaN keep their exponent
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

template <class T>
T round_to(float x);

template <>
inline float round_to<float>(float x) {
  return x;
}

template <>
inline c10::BFloat16 round_to<c10::BFloat16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40U;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return {static_cast<uint16_t>(is_nan ? nan : rounded), c10::BFloat16::from_bits()};
}

template <>
inline c10::Half round_to<c10::Half>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffU, sign = (bits & 0x80000000U) >> 16;
  // Normal results: changes the exponent's bias from 127 to 15, and rounds away 13 bits.
  const uint32_t normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  // Subnormal results: adding 0.5 shifts the result's bits to the end and rounds them.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  const uint32_t beyond = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  const uint32_t finite = detail::where(magnitude < 0x38800000U, subnormal, normal);
  return {static_cast<uint16_t>(detail::where(magnitude >= 0x47800000U, beyond, finite) | sign), c10::Half::from_bits()};
}

}  // namespace npu_train
