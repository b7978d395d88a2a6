#include "train/callbacks/window_source.hpp"

#include <algorithm>

namespace npu_train::detail {

void WindowSource::begin_epoch(int64_t epoch, int64_t batch_in_epoch) {
  if (overfit_.enabled())
    overfit_.fill(*run_.loader);
  else
    run_.loader->begin_epoch(epoch, batch_in_epoch);
}

std::optional<Batch> WindowSource::next_batch(int64_t batch_in_epoch) {
  const auto limit = run_.options.fast_dev_run ? 1 : run_.options.limit_train_batches;
  if (limit >= 0 && batch_in_epoch >= limit) return std::nullopt;
  return overfit_.enabled() ? overfit_.at(batch_in_epoch) : run_.loader->next();
}

std::vector<Batch> WindowSource::next(int64_t& batch_in_epoch, double& data_wait) {
  std::vector<Batch> window;
  for (int64_t k = 0; k < run_.options.accumulate_grad_batches; ++k) {
    const auto start = run_.clock.now();
    auto batch = run_.observers.run(Phase::DataWait, run_.step.attempts(), static_cast<int>(k), [&] { return next_batch(batch_in_epoch); });
    data_wait += run_.clock.now() - start;
    if (!batch) break;
    ++batch_in_epoch;
    window.push_back(std::move(*batch));
    run_.memory.copy_newest(window, run_.options.accumulate_grad_batches);
  }
  return window;
}

bool WindowSource::is_over(const std::vector<Batch>& window) const {
  // A data set that is shared evenly ends on every rank after the same window. Streams, and data without the bad samples, may not.
  const auto& o = run_.loader->options();
  const bool even = o.world_size == run_.strategy.world_size() && o.shard != ShardMode::Uneven && !o.skip_bad_samples &&
                    run_.loader->batches_per_epoch().has_value();
  return even ? window.empty() : !run_.strategy.any(!window.empty());
}

std::optional<int64_t> WindowSource::windows_per_epoch() const {
  const auto& o = run_.options;
  auto batches = run_.loader->batches_per_epoch();
  if (o.overfit_batches > 0) batches = std::min(batches.value_or(o.overfit_batches), o.overfit_batches);
  if (o.fast_dev_run) batches = 1;
  if (o.limit_train_batches >= 0) batches = std::min(batches.value_or(o.limit_train_batches), o.limit_train_batches);
  if (!batches) return std::nullopt;
  return (*batches + o.accumulate_grad_batches - 1) / o.accumulate_grad_batches;
}

}  // namespace npu_train::detail
