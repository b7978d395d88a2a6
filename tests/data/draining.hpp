/// What the loader's tests share: its options, and everything that an epoch gives.
#pragma once

#include <utility>
#include <vector>

#include "npu_train/base/digest.hpp"
#include "npu_train/data/loader.hpp"

namespace npu_train::testing {

/// What an epoch gives: ids and a digest of every batch.
using Drained = std::vector<std::pair<std::vector<int64_t>, uint64_t>>;

inline Drained drain(Loader& loader) {
  Drained out;
  while (auto batch = loader.next()) {
    uint64_t all = 0;
    for (const auto& [name, value] : batch->fields()) all = all * 31 + digest(value);
    CHECK(batch->index == loader.cursor() - 1);
    out.emplace_back(batch->ids, all);
  }
  return out;
}

inline Drained epoch_of(Loader& loader, int64_t epoch, int64_t first = 0) {
  loader.begin_epoch(epoch, first);
  return drain(loader);
}

inline LoaderOptions options(int64_t workers, int64_t batch = 8) {
  LoaderOptions out;
  out.batch_size = batch;
  out.shuffle = true;
  out.num_workers = workers;
  out.seed = 42;
  return out;
}

}  // namespace npu_train::testing
