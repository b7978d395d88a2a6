// Parallel work over plain memory in chunks of a fixed size, so that results do not depend on the number of threads.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace npu_train::detail {

constexpr int64_t kChunk = int64_t{1} << 16;

// Calls part_of(start, count) for each chunk of n elements on all threads; returns the results in order.
template <class PartOf>
auto parts_of_chunks(int64_t n, PartOf&& part_of) {
  std::vector<decltype(part_of(int64_t{0}, int64_t{0}))> parts(static_cast<size_t>((n + kChunk - 1) / kChunk));
  at::parallel_for(0, static_cast<int64_t>(parts.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t c = from; c < to; ++c) parts[static_cast<size_t>(c)] = part_of(c * kChunk, std::min(kChunk, n - c * kChunk));
  });
  return parts;
}

}  // namespace npu_train::detail
