// Decides when averages of weights are updated: those of kind swa between steps, those of kind checkpoints at the end of the run. A moving
// average is updated by the step itself.
#pragma once

#include <cstdint>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/optim/average.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/train/options.hpp"

namespace npu_train::detail {

class Averaging final : public Stateful {
 public:
  // All arguments are borrowed; `average` may be nullptr. Error(Usage) if the start is a share of a run whose length is not known.
  Averaging(WeightAverage* average, const Optimizer& optimizer, const TrainerOptions& limits);

  // Called after each step taken, in the epoch with this number.
  void note_step(int64_t epoch, int64_t global_step);
  // Called at the end of each epoch, before its validation.
  void note_epoch(int64_t epoch, int64_t global_step);

  // Returns whether the averages have changed since statistics_taken(). If so, the running statistics belong to the weights of the last
  // update, not to the averages.
  bool needs_statistics() const { return is_updated_here() && averaged_step_ > statistics_step_ && average_->updates() > 0; }
  void statistics_taken() {
    judged_ = judged_ && !needs_statistics();
    statistics_step_ = averaged_step_;
  }

  // Returns whether the averages are the same as in the last call of judge(). Another validation would give no information about the
  // training since then.
  bool is_judged() const { return judged_; }
  void judge() { judged_ = is_updated_here() && average_->updates() > 0; }

  // Returns the number of newest checkpoints whose mean is to be taken at the end of the run (average.last). Returns 0 for other kinds of
  // averages, and if the averages are already those of this step.
  int64_t wanted_checkpoints(int64_t global_step) const;
  // begin() starts a new average, and add() adds one set of weights to it; `values` has the names of the optimizer's parameters.
  void begin() { average_->reset(); }
  void add(const ParameterSet& values, int64_t global_step);

  // Returns an empty state unless this class updates the averages.
  State state() const override;
  void load_state(const State& state) override;

 private:
  bool is_updated_here() const { return average_ != nullptr && !average_->follows_steps(); }
  bool is(const char* kind) const { return average_ != nullptr && average_->options().kind == kind; }
  bool has_begun(int64_t epoch, int64_t global_step) const;

  WeightAverage* average_;
  const Optimizer& optimizer_;
  int64_t max_epochs_, max_steps_;  // limits of the configuration, as schedules use them; a program may end the run earlier
  int64_t averaged_step_ = -1;      // global step at the last update
  int64_t statistics_step_ = -1;    // global step of the averages whose statistics were taken last
  bool judged_ = false;
};

}  // namespace npu_train::detail
