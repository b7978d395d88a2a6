// The windows of an epoch: micro-batches of the loader, or those of trainer.overfit_batches, up to the limits of the configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "npu_train/base/step_observer.hpp"
#include "npu_train/core/clock.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/dist/ranks.hpp"
#include "npu_train/train/options.hpp"
#include "npu_train/train/step.hpp"
#include "train/callbacks/memory_retry.hpp"
#include "train/callbacks/overfit_batches.hpp"

namespace npu_train::detail {

// Reads windows by position: the number of micro-batches of an epoch that all ranks together have consumed. The window at position p
// consists of the micro-batches [p, p + ranks x accumulate_grad_batches), of which each rank has those that its loader gives. So the
// position is equal on every rank, whether or not a rank had a batch, and a run with another number of ranks can continue from it.
class WindowSource {
 public:
  struct Context {
    Loader* loader;  // loader of the training data; nullptr for a program that passes its own batches
    const TrainerOptions& options;
    const Clock& clock;
    const Observers& observers;
    const WindowStep& step;
    MemoryRetry& memory;  // copies micro-batches to the device
    Ranks& ranks;
  };
  explicit WindowSource(Context context) : run_(context), overfit_(context.options.overfit_batches) {}

  void begin_epoch(int64_t epoch, int64_t position);
  // Returns this rank's part of the window at `position`, and moves `position` to the window's end. Returns an empty list if only other
  // ranks have a batch in the window, and nullopt if the epoch has ended, on all ranks at once. Adds the seconds spent waiting for data to
  // `data_wait`.
  std::optional<std::vector<Batch>> next(int64_t& position, double& data_wait);

  // Returns nullopt for data of unknown length.
  std::optional<int64_t> windows_per_epoch() const;
  // Returns the number of windows of the current epoch before `position`.
  int64_t windows_done(int64_t position) const;
  // Returns whether trainer.val_check_interval requires a validation at `position`; not at the end of the epoch, if its length is known.
  bool validation_is_due(int64_t position) const;
  // Throws Error(Usage) for an interval that is not possible with this data.
  void check_validations() const;
  bool finished(int64_t position) const { return position >= length().value_or(position + 1); }

  // Returns nullptr without trainer.overfit_batches.
  OverfitBatches* overfit() { return overfit_.enabled() ? &overfit_ : nullptr; }

 private:
  int64_t ranks() const { return run_.loader != nullptr ? run_.loader->options().world_size : 1; }
  int64_t micro_batches_per_window() const { return ranks() * run_.options.accumulate_grad_batches; }
  std::optional<int64_t> length() const;
  bool length_is_agreed() const;
  std::optional<int64_t> windows_between_validations() const;
  std::vector<Batch> take(int64_t& position, double& data_wait);
  std::optional<Batch> next_batch(int64_t begin, int64_t end);
  void report_unequal_parts() const;

  Context run_;
  OverfitBatches overfit_;
  bool whole_ = true;          // the epoch began at its first micro-batch
  int64_t taken_ = 0;          // batches of this rank since the epoch began or was resumed
  std::optional<Batch> held_;  // a batch of a later window, read early because the loader omits batches without a readable sample
};

}  // namespace npu_train::detail
