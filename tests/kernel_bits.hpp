/// Inputs that do not depend on the machine, and digests of results, for kernels that have the same bits on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace npu_train::testing {

/// Numbers that follow from a seed.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}

  /// Returns 31 random bits.
  uint32_t bits() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>(state_ >> 33);
  }
  /// Returns the next number. The sequence has all exponents that occur in a network's maps, zeros of both signs, and subnormal numbers.
  float next() {
    const uint32_t kind = bits();
    float x = (static_cast<float>(bits() & 0xffffffU) - 8388607.5F) / 3000000.0F;
    if (kind % 3 == 0) x *= 0.01F;
    if (kind % 79 == 0) x *= 300.0F;
    if (kind % 83 == 0) x = -0.0F;
    if (kind % 89 == 0) x = 0.0F;
    if (kind % 97 == 0) x *= 1e-38F;
    return x;
  }

 private:
  uint64_t state_;
};

/// FNV-1a hash over the bytes of results.
class Digest {
 public:
  template <class T>
  void add(const T* values, size_t n) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values);
    for (size_t i = 0; i < n * sizeof(T); ++i) value_ = (value_ ^ bytes[i]) * 1099511628211ULL;
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.data(), values.size());
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 14695981039346656037ULL;
};

}  // namespace npu_train::testing
