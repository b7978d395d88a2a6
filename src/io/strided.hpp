/// Strided memory: which order the elements have in it, and how to take them out row-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace npu_train::detail {

/// The significant strides, those of extents above 1; the others are arbitrary.
std::vector<int64_t> telling_strides(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// Row-major without holes.
bool is_row_major(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// Some order of the dimensions makes it row-major: no holes, nothing twice.
bool is_dense_layout(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// Elements from the first to the last in memory, both included. For strides that are not negative and a tensor that has elements.
int64_t spanned_elements(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// Copies the elements `first` to `first + count` in row-major order to `out`; `from` is the address of element 0. `element_size` is 1, 2,
/// 4 or 8.
void gather(const void* from, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, size_t element_size, int64_t first,
            int64_t count, void* out);

}  // namespace npu_train::detail
