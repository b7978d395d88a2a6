// Detects that a training has diverged (a loss that is not finite, or repeated overflows at the floor of the loss scale), and reacts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/dist/ranks.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "npu_train/train/overflow_report.hpp"
#include "npu_train/train/report.hpp"
#include "train/callbacks/learning_rate.hpp"

namespace npu_train::detail {

class Divergence final : public Stateful {
 public:
  struct Finding {
    std::string cause, remedy;
  };

  explicit Divergence(int64_t max_consecutive_skips) : most_skips_(max_consecutive_skips) {}

  void note_step(bool taken);
  // Keeps the explanation of an overflow for a finding, until a step is taken.
  void note_overflow(const OverflowReport& report);
  // `at_floor`: the loss scale was at its floor before the step.
  std::optional<Finding> check(const StepReport& report, bool at_floor, bool has_floor) const;

  State state() const override { return {{}, {{"skip_streak", skip_streak_}}}; }
  void load_state(const State& state) override { skip_streak_ = state.integer("skip_streak", "loop"); }

 private:
  int64_t most_skips_;
  int64_t skip_streak_ = 0;
  std::string overflow_cause_, overflow_remedy_;  // explanation of the current row of skipped steps, if there is one
};

// The reaction to a divergence: the training ends. With trainer.on_divergence: rollback, it returns to the last checkpoint with a tenth of
// the learning rate instead.

class Rollback final : public Stateful {
 public:
  Rollback(bool enabled, Ranks& ranks) : enabled_(enabled), ranks_(ranks) {}

  // Throws Error(Diverged). If the run cannot roll back, first calls `keep`, which writes the broken state and returns its folder.
  [[noreturn]] void diverged(const Divergence::Finding& found, const CheckpointStore* store,
                             const std::function<std::string()>& keep) const;

  // Called after Error(Diverged). Restores the run, including this object, with `load`; returns false if the run cannot roll back.
  // Afterwards, sets the count of rollbacks to the count before the call plus one, and the factor on the rate to a tenth of the factor
  // before the call, instead of the values of the checkpoint. So a second rollback lowers the rate again.
  bool run(const Error& cause, const CheckpointStore* store, LearningRate& rate, const std::function<void(const std::string& path)>& load);

  State state() const override { return {{}, {{"rollbacks", done_}}}; }
  void load_state(const State& state) override { done_ = state.integer("rollbacks", "loop"); }

 private:
  // Returns the checkpoint to roll back to, which the main rank selects; "" if rollbacks are off or used up, or without a checkpoint.
  std::string target(const CheckpointStore* store) const;

  static constexpr int64_t kMost = 2;
  bool enabled_;
  Ranks& ranks_;
  int64_t done_ = 0;
};

}  // namespace npu_train::detail
