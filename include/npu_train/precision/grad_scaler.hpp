/// Loss scaling for your own loop, as torch.amp.GradScaler does it in Python.
///
///   npu_train::GradScaler scaler;
///   { npu_train::Autocast autocast(device, torch::kHalf); loss = loss_fn(model->forward(x), y); }
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);                                  // only needed to look at or change gradients
///   npu_train::clip_grad_norm_(model->parameters(), 1.0);
///   scaler.step(optimizer);                                      // skipped, and counted, on overflow
///   scaler.update();
///
/// `optimizer` is one of npu_train's, or a torch::optim::Optimizer. Several optimizers and several losses may share a scaler: unscale_
/// and step each optimizer, then update once; each optimizer skips for itself, and one overflow backs the scale off.
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

/// Makes ranks agree: gets found_inf (fp32 scalar, 0 or 1) and sets it to the largest over all ranks. The identity by default.
using Agree = std::function<void(at::Tensor& found_inf)>;

class GradScaler final : public Stateful {
 public:
  /// Without options: 65536, doubled after 2000 clean steps, halved on overflow, no floor, no cap. Disabled, scale() gives its input and
  /// step() just steps.
  explicit GradScaler(LossScaleOptions options = {}, bool enabled = true, Agree agree = {});

  /// `loss` times the scale, in the graph. An fp16 scalar is multiplied in fp32.
  at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of the optimizer's parameters by the scale and notes whether one is not finite; of a sparse (COO) gradient its
  /// values. Without any gradient it does nothing. At most once per optimizer between two update() calls and not after step(): Error(Usage)
  /// otherwise. Error(Usage) for slices of parameters that ranks divide, without an Agree; and for fp16 gradients: they have lost what the
  /// scale was to save (keep fp32 parameters and use Autocast; `16-true` of Precision keeps fp32 masters), and for complex and expanded
  /// ones.
  template <class Optimizer>
  void unscale_(Optimizer& optimizer) {
    if (enabled_) unscale(&optimizer, gradients_of(optimizer));
  }

  /// Steps the optimizer unless one of its gradients is not finite; unscales first where unscale_() was not called. Reads the flag on the
  /// host once. True: the step was taken. Twice for one optimizer without update(): Error(Usage), as is a step without any gradient.
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

  /// The end of an iteration: moves the scale by what the optimizers found and forgets them. Error(Usage) if no gradient was unscaled since
  /// the last one.
  void update();
  /// The end of an iteration with a scale of your own.
  void update(double new_scale);

  /// 1 when disabled.
  double get_scale() const { return enabled_ ? scale_.scale() : 1.0; }
  bool is_enabled() const { return enabled_; }
  /// Counters and limits.
  const LossScale& loss_scale() const { return scale_; }

  /// Values "scale", "growth_tracker", "skip_streak", "overflows"; empty when disabled.
  State state() const override;
  /// An empty state (of a disabled scaler) is refused by an enabled one; a disabled one takes anything and stays as it is. "overflows" may
  /// be missing, as it is in older states.
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
      static_cast<SkippableStep&>(optimizer).step(StepGate{});
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
  mutable std::vector<at::Tensor> places_;  // one on each device that losses or gradients were on
  bool enabled_;
  Agree agree_;
  std::map<const void*, PerOptimizer> optimizers_;
};

}  // namespace npu_train
