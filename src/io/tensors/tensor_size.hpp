/// Checks of tensors in files: shapes whose product may overflow, and booleans that are neither 0 nor 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace npu_train::detail {

/// Returns the bytes of a tensor; nullopt if an extent is negative or the size would not fit into 63 bits. Multiplies only non-zero
/// extents, so that [0, 2^40, 2^40] is refused, too.
inline std::optional<uint64_t> byte_count(const std::vector<int64_t>& shape, uint64_t element_size) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (shape.size() > 64) return std::nullopt;
  uint64_t product = element_size;
  bool empty = false;
  for (const auto extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
    } else if (static_cast<uint64_t>(extent) > kMost / product) {
      return std::nullopt;
    } else {
      product *= static_cast<uint64_t>(extent);
    }
  }
  return empty ? 0 : product;
}

/// Returns the strides of a row-major tensor in elements. Requires a shape that byte_count accepts.
inline std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    out[i] = step;
    step *= shape[i] > 0 ? shape[i] : 1;
  }
  return out;
}

/// Sets every non-zero byte to 1: a bool with another value is undefined behaviour.
inline void make_bools(void* data, size_t bytes) {
  auto* byte = static_cast<unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) byte[i] = byte[i] != 0 ? 1 : 0;
}

}  // namespace npu_train::detail
