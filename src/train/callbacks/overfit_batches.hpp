// trainer.overfit_batches: the first batches of the training data, for training and validation.
#pragma once

#include <optional>
#include <vector>

#include "npu_train/data/loader.hpp"

namespace npu_train::detail {

class OverfitBatches {
 public:
  // 0: off.
  explicit OverfitBatches(int64_t count) : count_(count) {}

  bool enabled() const { return count_ > 0; }
  // Reads them, once.
  void fill(Loader& loader);
  int64_t size() const { return static_cast<int64_t>(batches_.size()); }
  // nullopt after the last one.
  std::optional<Batch> at(int64_t index) const;

 private:
  int64_t count_;
  std::vector<Batch> batches_;
};

}  // namespace npu_train::detail
