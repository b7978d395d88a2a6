#include "io/tensors/strided.hpp"

#include <algorithm>
#include <numeric>

#include "io/tensors/tensor_size.hpp"

namespace npu_train::detail {
namespace {

template <class T>
void gather_of(const T* from, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t first, int64_t count,
               T* out) {
  // Position of `first` in each dimension; afterwards it is incremented like an odometer.
  const size_t dims = sizes.size();
  std::vector<int64_t> place(dims, 0);
  int64_t at = 0;
  for (size_t d = dims; d-- > 0;) {
    place[d] = first % sizes[d];
    first /= sizes[d];
    at += place[d] * strides[d];
  }
  const int64_t row = dims > 0 ? sizes[dims - 1] : 1;
  const int64_t step = dims > 0 ? strides[dims - 1] : 1;
  int64_t column = dims > 0 ? place[dims - 1] : 0;
  while (count > 0) {
    const int64_t run = std::min(count, row - column);
    const T* source = from + at;
    for (int64_t i = 0; i < run; ++i) out[i] = source[i * step];
    out += run;
    count -= run;
    at -= column * step;
    column = 0;
    for (size_t d = dims > 0 ? dims - 1 : 0; d-- > 0;) {
      at += strides[d];
      if (++place[d] < sizes[d]) break;
      at -= place[d] * strides[d];
      place[d] = 0;
    }
  }
}

}  // namespace

std::vector<int64_t> telling_strides(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  std::vector<int64_t> out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1) out.push_back(strides[d]);
  }
  return out;
}

bool is_row_major(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  return telling_strides(sizes, strides) == telling_strides(sizes, contiguous_strides(sizes));
}

bool is_dense_layout(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t step = 1;
  for (const auto d : order) {
    if (sizes[d] == 1) continue;
    if (strides[d] != step) return false;
    step *= sizes[d];
  }
  return true;
}

int64_t spanned_elements(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t out = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1) out += (sizes[d] - 1) * strides[d];
  }
  return out;
}

void gather(const void* from, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, size_t element_size, int64_t first,
            int64_t count, void* out) {
  const auto as = [&](auto element) {
    using T = decltype(element);
    gather_of(static_cast<const T*>(from), sizes, strides, first, count, static_cast<T*>(out));
  };
  switch (element_size) {
    case 1:
      return as(uint8_t{});
    case 2:
      return as(uint16_t{});
    case 4:
      return as(uint32_t{});
    default:
      return as(uint64_t{});
  }
}

}  // namespace npu_train::detail
