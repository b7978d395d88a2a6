// Detects that a training has diverged: a loss that is not finite, or repeated overflows at the floor of the loss scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/train/overflow_report.hpp"
#include "npu_train/train/report.hpp"

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

}  // namespace npu_train::detail
