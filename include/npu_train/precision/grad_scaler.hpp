/// Loss scaling for a custom training loop, like torch.amp.GradScaler in Python.
///
///   npu_train::GradScaler scaler;
///   { npu_train::Autocast autocast(device, torch::kHalf); loss = loss_fn(model->forward(x), y); }
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);                                  // only needed to read or change gradients
///   npu_train::clip_grad_norm_(model->parameters(), 1.0);
///   scaler.step(optimizer);                                      // skipped, and counted, on overflow
///   scaler.update();
///
/// `optimizer` is an optimizer of npu_train or a torch::optim::Optimizer. Several optimizers and several losses may share a scaler:
/// unscale_ and step each optimizer, then update once. Each optimizer decides separately whether to skip; one overflow reduces the scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <type_traits>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/skippable_step.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/precision/loss_scale.hpp"

namespace npu_train {

/// Makes ranks agree: replaces found_inf (fp32 scalar, 0 or 1) with its maximum over all ranks. By default the identity.
using Agree = std::function<void(at::Tensor& found_inf)>;

class GradScaler final : public Stateful {
 public:
  /// By default the scale starts at 65536, doubles after 2000 clean steps and halves on overflow, without floor and cap. If disabled,
  /// scale() returns its input and step() always steps.
  explicit GradScaler(LossScaleOptions options = {}, bool enabled = true, Agree agree = {});

  /// Returns `loss` times the scale, differentiably. An fp16 or bf16 scalar is multiplied in fp32.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of the optimizer's parameters by the scale, and records whether one of them is not finite; for sparse (COO)
  /// gradients, it does so with their values. Call it at most once per optimizer between two update() calls, and not after step():
  /// otherwise Error(Usage). Also Error(Usage) for slices of sharded parameters without an Agree, for fp16 gradients (small values are
  /// already lost: keep fp32 parameters and use Autocast, or `16-true` of Precision with fp32 masters), and for complex and expanded
  /// gradients.
  template <class Optimizer>
  void unscale_(Optimizer& optimizer) {
    if (enabled_) unscale(&optimizer, gradients_of(optimizer));
  }

  /// Steps the optimizer unless one of its gradients is not finite; unscales first if unscale_() was not called. Reads the flag on the host
  /// once. Returns whether the step was taken. Error(Usage) for a second step of an optimizer without update(), and if there is no
  /// gradient.
  template <class Optimizer>
  bool step(Optimizer& optimizer) {
    if (!enabled_) {
      step_ungated(optimizer);
      return true;
    }
    if (!is_unscaled(&optimizer)) unscale(&optimizer, gradients_of(optimizer));
    const bool found = begin_step(&optimizer);
    if (!found) step_ungated(optimizer);
    return !found;
  }

  /// Ends an iteration: updates the scale from the overflows of the optimizers and clears them. Error(Usage) if no gradient was unscaled
  /// since the last update.
  void update();
  /// Ends an iteration and sets the scale.
  void update(double new_scale);

  /// Returns the scale; 1 if disabled.
  double get_scale() const { return enabled_ ? scale_.scale() : 1.0; }
  bool is_enabled() const { return enabled_; }
  /// The state machine behind the scale, with its counters and limits.
  const LossScale& loss_scale() const { return scale_; }

  /// Values "scale", "growth_tracker", "skip_streak", "overflows"; empty when disabled.
  State state() const override;
  /// Restores a state. An enabled scaler rejects an empty state, which a disabled scaler has saved; a disabled one ignores any state.
  /// "overflows" may be missing, as in older states.
  void load_state(const State& state) override;

 private:
  struct PerOptimizer {
    at::Tensor found_inf;
    bool stepped = false;
    bool known = false;  // the host has read found_inf
    bool found = false;
  };

  void check_agreement(const ParameterSet& updated) const;
  void unscale(const void* optimizer, const std::vector<at::Tensor>& gradients);
  bool is_unscaled(const void* optimizer) const;
  bool begin_step(const void* optimizer);

  template <class Optimizer>
  static void step_ungated(Optimizer& optimizer) {
    if constexpr (std::is_base_of_v<SkippableStep, Optimizer>)
      static_cast<SkippableStep&>(optimizer).step(StepDecision{});
    else
      translated("GradScaler::step", [&] { optimizer.step(); });
  }

  template <class Optimizer>
  std::vector<at::Tensor> gradients_of(Optimizer& optimizer) const {
    if constexpr (std::is_base_of_v<SkippableStep, Optimizer>) {
      check_agreement(optimizer.parameters());
      return optimizer.parameters().grads();
    } else {
      std::vector<at::Tensor> out;
      for (auto& group : optimizer.param_groups())
        for (const auto& p : group.params())
          if (p.grad().defined()) out.push_back(p.grad());
      return out;
    }
  }

  LossScale scale_;
  void know_device_of(const at::Tensor& t, bool clear) const;
  mutable std::vector<at::Tensor> places_;  // one tensor for each device that has had losses or gradients
  bool enabled_;
  Agree agree_;
  std::map<const void*, PerOptimizer> optimizers_;
};

}  // namespace npu_train
