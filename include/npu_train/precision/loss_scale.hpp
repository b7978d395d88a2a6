/// The dynamic loss scale as a pure state machine: no tensors, no device.
///
/// fp16 gradients below 6e-8 vanish, so the loss is multiplied by a scale and the gradients are divided by it again (Micikevicius et al.,
/// "Mixed Precision Training", ICLR 2018). The scale seeks the largest value that does not overflow: it halves if a gradient is not finite
/// (that step is skipped) and doubles after `growth_interval` clean steps in a row. This is the rule of torch.amp.GradScaler, with a floor
/// and a cap.
///
/// With `hysteresis` N, the first N - 1 overflows do not change the scale; the N-th and each later one halve it until it has grown again.
/// Clean steps in between do not reset the count of overflows. This is Megatron-LM's DynamicGradScaler (core/optimizer/grad_scaler.py), and
/// DeepSpeed's with consecutive_hysteresis off.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "npu_train/core/error.hpp"

namespace npu_train {

struct LossScaleOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;                              ///< clean steps in a row before the scale grows
  double min_scale = 0;                                        ///< floor; 0: 2^-126, the smallest normal fp32 number
  double max_scale = std::numeric_limits<double>::infinity();  ///< cap
  bool dynamic = true;     ///< false: the scale stays at init_scale; steps with an overflow are still skipped and counted
  int64_t hysteresis = 1;  ///< number of overflows before the scale falls; 1: every overflow, as in torch
};

/// Complete state of a loss scale, including the progress in a growth interval.
struct LossScaleState {
  double scale = 0;
  int64_t growth_tracker = 0;
  int64_t skip_streak = 0;
  int64_t overflows = 0;  ///< overflows since the scale last grew, at most `hysteresis`
  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

class LossScale {
 public:
  /// Error(Usage) if init_scale is not positive and finite in fp32, is outside [min_scale, max_scale] or below 2^-126; also for
  /// growth_factor <= 1, backoff_factor outside (0, 1), growth_interval < 1, hysteresis < 1, min_scale < 0 and min_scale > max_scale.
  explicit LossScale(LossScaleOptions options = {}) : options_(options), state_{.scale = options.init_scale} {
    const auto& o = options_;
    const auto usage = [](bool ok, const char* name, double given, const char* allowed) {
      check(ok, ErrorKind::Usage, "LossScale", name, " is ", given, "; it must be ", allowed);
    };
    usage(o.growth_factor > 1 && o.growth_factor <= kLargest, "growth_factor", o.growth_factor, "more than 1");
    usage(o.backoff_factor > 0 && o.backoff_factor < 1, "backoff_factor", o.backoff_factor, "between 0 and 1, both excluded");
    usage(o.growth_interval >= 1, "growth_interval", static_cast<double>(o.growth_interval), "at least 1");
    usage(o.hysteresis >= 1, "hysteresis", static_cast<double>(o.hysteresis), "at least 1");
    usage(o.min_scale >= 0 && o.min_scale <= o.max_scale, "min_scale", o.min_scale, "at least 0 and at most max_scale");
    usage(o.init_scale > 0 && o.init_scale <= kLargest, "init_scale", o.init_scale, "positive and finite in fp32");
    usage(o.init_scale >= o.min_scale && o.init_scale <= o.max_scale, "init_scale", o.init_scale, "between min_scale and max_scale");
    usage(o.init_scale >= kSmallest && o.max_scale >= kSmallest, "init_scale", o.init_scale, "at least 2^-126, as max_scale");
    options_.min_scale = std::max(options_.min_scale, kSmallest);
  }

  /// Counts an attempted step. `found_inf`: a gradient was not finite, and the step was skipped.
  void update(bool found_inf) {
    state_.skip_streak = found_inf ? state_.skip_streak + 1 : 0;
    if (!options_.dynamic) return;
    if (found_inf) {
      state_.growth_tracker = 0;
      state_.overflows = std::min(state_.overflows + 1, options_.hysteresis);
      if (state_.overflows == options_.hysteresis) state_.scale = std::max(state_.scale * options_.backoff_factor, options_.min_scale);
    } else if (++state_.growth_tracker == options_.growth_interval) {
      const double grown = std::min(state_.scale * options_.growth_factor, options_.max_scale);
      if (grown <= kLargest) state_.scale = grown;
      state_.growth_tracker = state_.overflows = 0;
    }
  }

  double scale() const { return state_.scale; }
  /// Clean steps since the scale last grew or a step overflowed.
  int64_t growth_tracker() const { return state_.growth_tracker; }
  /// Number of consecutive skipped steps up to now.
  int64_t skip_streak() const { return state_.skip_streak; }
  /// Returns whether the scale cannot fall further; if so, a smaller scale cannot prevent an overflow.
  bool at_floor() const { return !options_.dynamic || state_.scale <= options_.min_scale; }
  const LossScaleOptions& options() const { return options_; }

  LossScaleState state() const { return state_; }
  /// Restores a state, with the scale clamped to this object's floor and cap, which may differ from those of the saved run.
  /// Error(Checkpoint) for an invalid state.
  void load_state(const LossScaleState& state) {
    check(state.scale > 0 && state.scale <= kLargest && state.growth_tracker >= 0 && state.skip_streak >= 0 && state.overflows >= 0,
          ErrorKind::Checkpoint, "LossScale", "scale ", state.scale, ", growth tracker ", state.growth_tracker, ", skip streak ",
          state.skip_streak, ", overflows ", state.overflows, " is not a state of a loss scale");
    state_ = state;
    state_.scale = std::clamp(state.scale, options_.min_scale, options_.max_scale);
    // if the saved run had a longer interval, the scale grows at the next clean step
    state_.growth_tracker = std::min(state.growth_tracker, options_.growth_interval - 1);
    state_.overflows = std::min(state.overflows, options_.hysteresis);
  }

 private:
  static constexpr double kSmallest = 0x1p-126;
  static constexpr double kLargest = std::numeric_limits<float>::max();  // limit of fp32, because the device has the scale in fp32

  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace npu_train
