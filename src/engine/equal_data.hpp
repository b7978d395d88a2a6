// Checks before training that all ranks read the same data.
#pragma once

#include <cstdint>

#include "npu_train/data/datasets.hpp"
#include "npu_train/dist/ranks.hpp"

namespace npu_train::detail {

/// Compares the ranks' data: sizes, classes, shapes, and 64 records each of the training and validation data, drawn with `seed`. Streams
/// are compared by description only, since reading their records would advance them. Error(Data) names the first rank that differs from
/// rank 0, and the difference. Records are not compared if a data set returns other contents at each read. Every rank must call it.
/// Restores the random number generators.
void check_equal_data(Ranks& ranks, const DatasetPair& data, uint64_t seed);

}  // namespace npu_train::detail
