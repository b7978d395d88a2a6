#include "train/callbacks/overfit_batches.hpp"

#include <algorithm>

namespace npu_train::detail {

void OverfitBatches::fill(Loader& loader) {
  if (!batches_.empty()) return;
  const auto end = rounds_ * loader.options().world_size;
  loader.begin_epoch(0);
  while (loader.cursor() < end) {
    auto batch = loader.next();
    if (!batch || batch->index >= end) break;
    batches_.push_back(std::move(*batch));
  }
}

std::optional<Batch> OverfitBatches::at(int64_t index) const {
  return index < size() ? std::optional(batches_[static_cast<size_t>(index)]) : std::nullopt;
}

std::optional<Batch> OverfitBatches::first_from(int64_t micro_batch) const {
  const auto found = std::find_if(batches_.begin(), batches_.end(), [&](const Batch& b) { return b.index >= micro_batch; });
  return found != batches_.end() ? std::optional(*found) : std::nullopt;
}

}  // namespace npu_train::detail
