// Compares the values of a pair of items, which are read from the files of two dumps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "npu_train/tools/align/dump_reader.hpp"
#include "npu_train/tools/align/pair_metrics.hpp"

namespace npu_train::detail {

struct ValueFile {
  std::filesystem::path path;
  const DumpItem& item;
  double loss_scale = 1;  // the elements are divided by it
};

struct ValuePair {
  PairMetrics metrics;
  int64_t bytes = 0;   // number of bytes read from both files
  bool whole = false;  // whether `metrics` covers all elements of the files
};

// Compares the files piece by piece. `share` below 1 reads only this fraction of the elements, in runs that `seed` distributes over the
// tensor; the runs are the same on both sides. Error(Data) for files that cannot be read, or that contradict their items.
ValuePair compare_value_files(const ValueFile& a, const ValueFile& b, double share, uint64_t seed);

// Returns the number of elements; -1 for a shape that no tensor can have.
int64_t numel_of(const std::vector<int64_t>& shape);

}  // namespace npu_train::detail
