// The windows of an epoch: micro-batches of the loader, or those of trainer.overfit_batches, up to the limits of the configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "npu_train/base/step_observer.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/train/options.hpp"
#include "npu_train/train/step.hpp"
#include "train/callbacks/memory_retry.hpp"
#include "train/callbacks/overfit_batches.hpp"

namespace npu_train::detail {

class WindowSource {
 public:
  struct Context {
    Loader* loader;  // of the training; nullptr for a program that brings its batches
    const TrainerOptions& options;
    const Clock& clock;
    const Observers& observers;
    const TrainStep& step;
    MemoryRetry& memory;  // brings micro-batches to the device
    Strategy& strategy;
  };
  explicit WindowSource(Context context) : run_(context), overfit_(context.options.overfit_batches) {}

  void begin_epoch(int64_t epoch, int64_t batch_in_epoch);
  // Empty when this rank has no more batch in the epoch. Counts its micro-batches in `batch_in_epoch`, and adds the seconds of waiting for
  // data.
  std::vector<Batch> next(int64_t& batch_in_epoch, double& data_wait);
  // Whether the epoch has ended, with `window` the next one: on all ranks at once, when the last of them has no more batch.
  bool is_over(const std::vector<Batch>& window) const;
  // nullopt for data of unknown length.
  std::optional<int64_t> windows_per_epoch() const;

  // nullptr: off.
  OverfitBatches* overfit() { return overfit_.enabled() ? &overfit_ : nullptr; }

 private:
  std::optional<Batch> next_batch(int64_t batch_in_epoch);

  Context run_;
  OverfitBatches overfit_;
};

}  // namespace npu_train::detail
