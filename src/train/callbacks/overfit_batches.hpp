// trainer.overfit_batches: the first batches of the training data on this rank, for training and validation.
#pragma once

#include <optional>
#include <vector>

#include "npu_train/data/loader.hpp"

namespace npu_train::detail {

class OverfitBatches {
 public:
  // `rounds`: number of batches on each rank; 0: off.
  explicit OverfitBatches(int64_t rounds) : rounds_(rounds) {}

  bool enabled() const { return rounds_ > 0; }
  // Reads the batches, once.
  void fill(Loader& loader);
  int64_t size() const { return static_cast<int64_t>(batches_.size()); }
  // Returns nullopt after the last batch.
  std::optional<Batch> at(int64_t index) const;
  // Returns the first batch whose number in the epoch is at least `micro_batch`.
  std::optional<Batch> first_from(int64_t micro_batch) const;

 private:
  int64_t rounds_;
  std::vector<Batch> batches_;
};

}  // namespace npu_train::detail
