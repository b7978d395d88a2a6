// The check before training that all ranks read the same data.
#pragma once

#include <cstdint>

#include "npu_train/data/datasets.hpp"
#include "npu_train/dist/strategy.hpp"

namespace npu_train::detail {

/// Compares the data that the ranks have opened: sizes, classes, shapes, and 64 records of the training and of the validation data, drawn
/// by `seed` over all of them. Of a stream, which only reading ahead would show, the description alone. Error(Data) names the first rank
/// that differs from rank 0, and what differs. A data set that does not give the same record twice is compared without records. Every rank
/// makes the call; the generators of random numbers continue as before it.
void check_equal_data(Strategy& strategy, const DatasetPair& data, uint64_t seed);

}  // namespace npu_train::detail
