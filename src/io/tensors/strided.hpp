/// Strided memory: the order of its elements, and copies in row-major order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace npu_train::detail {

/// Returns the strides of the dimensions longer than 1; other strides have no effect.
std::vector<int64_t> telling_strides(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// True if the tensor is row-major without gaps.
bool is_row_major(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// True if the tensor is row-major, without gaps or overlaps, in some order of its dimensions.
bool is_dense_layout(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// Returns the number of elements from the first to the last one in memory, inclusive. Requires non-negative strides and at least one
/// element.
int64_t spanned_elements(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides);

/// Copies elements [first, first + count) in row-major order to `out`; `from` is the address of element 0. `element_size` is 1, 2, 4 or 8.
void gather(const void* from, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, size_t element_size, int64_t first,
            int64_t count, void* out);

}  // namespace npu_train::detail
