#include "train/callbacks/overfit_batches.hpp"

namespace npu_train::detail {

void OverfitBatches::fill(Loader& loader) {
  if (!batches_.empty()) return;
  loader.begin_epoch(0);
  while (size() < count_) {
    auto batch = loader.next();
    if (!batch) break;
    batches_.push_back(std::move(*batch));
  }
}

std::optional<Batch> OverfitBatches::at(int64_t index) const {
  return index < size() ? std::optional(batches_[static_cast<size_t>(index)]) : std::nullopt;
}

}  // namespace npu_train::detail
