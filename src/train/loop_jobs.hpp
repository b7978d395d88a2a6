// The jobs of TrainLoop, one part each, and the order in which they act.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "npu_train/train/callbacks/early_stopping.hpp"
#include "npu_train/train/loop.hpp"
#include "train/callbacks/averaging.hpp"
#include "train/callbacks/callback_list.hpp"
#include "train/callbacks/checkpoint_writer.hpp"
#include "train/callbacks/divergence.hpp"
#include "train/callbacks/epoch_sums.hpp"
#include "train/callbacks/evaluation.hpp"
#include "train/callbacks/learning_rate.hpp"
#include "train/callbacks/memory_retry.hpp"
#include "train/callbacks/pending_step.hpp"
#include "train/callbacks/stop_limits.hpp"
#include "train/callbacks/trained_parameters.hpp"
#include "train/callbacks/window_source.hpp"

namespace npu_train {

// The order is a contract: tests/train/loop_order_test.cpp fails if two of these are exchanged.
//
//   a window            batches (overfit) -> copy to the device -> learning rate -> the ranking forgets its score
//                       -> the step, retried if it runs out of memory -> counters -> averages of kind swa, by average.every
//   its numbers, read   sums of the epoch -> callbacks' on_step_end -> divergence (Error; the step is not saved)
//   one step late       -> a stop by request -> validation by trainer.val_check_interval, as at the end of an epoch -> a stop by a limit
//                       -> checkpoint.every_n_train_steps
//   end of an epoch     averages of kind swa, and their running statistics -> validation -> callbacks' on_validation_end -> ranking
//                       -> early stopping -> callbacks' on_epoch_end
//                       -> checkpoint (with the score and the states that the parts before it have now) -> callbacks' on_checkpoint
//   between epochs      request, max_steps, max_time, fast_dev_run, max_epochs, early stopping: the first of them is the reason
//   divergence          the broken state is written unless the run goes back -> the checkpoint is loaded -> the rate is lowered
//   loading             which parameters are trained -> model -> optimizer -> scaler -> averages -> random numbers -> loader
//                       -> counters and parts of the loop -> callbacks, in the order in which they were added
//
// In each of these places, callbacks run in the order in which they were added.
struct TrainLoop::Jobs {
  // Functions of the loop that its parts need.
  struct Hooks {
    std::function<RunState(StateSlices& own)> state;
    std::function<CheckpointMeta()> meta;
    std::function<void(const std::string& path)> checkpoint_written;
  };
  // All arguments are borrowed, except the hooks and `early_stopping`.
  Jobs(const LoopParts& parts, const TrainerOptions& options, const CheckpointOptions& checkpoint,
       const EarlyStoppingOptions& early_stopping, WindowStep& step, const Observers& observers, Hooks hooks);

  std::optional<FailedWindow> failed;
  detail::StopLimits limits;
  detail::MemoryRetry memory;
  detail::WindowSource windows;
  detail::LearningRate rate;
  detail::Averaging averaging;
  std::unique_ptr<detail::PendingStep> pending;
  detail::EpochSums sums;
  detail::CallbackList callbacks;
  detail::Divergence divergence;
  detail::Evaluation evaluation;
  detail::CheckpointRanking ranking;
  EarlyStopping early;
  detail::CheckpointWriter writer;
  detail::Rollback rollback;
  ParameterSet of_first;  // the parameters of the first optimizer
  detail::TrainedParameters trained;

  // Throws Error(Diverged), after writing the broken state unless the run rolls back.
  [[noreturn]] void diverged(const detail::Divergence::Finding& found) {
    writer.settle_parts();
    rollback.diverged(found, writer.store(), [this] { return writer.save_diverged(); });
  }

  // Returns the jobs that save a state in the checkpoint's part `loop`, each under its own keys. `trained` is loaded before all of them.
  std::vector<Stateful*> with_state() { return {&rate, &averaging, &memory, &sums, &divergence, &ranking, &early, &rollback}; }
};

}  // namespace npu_train
