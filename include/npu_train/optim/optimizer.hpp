/// Common parts of all optimizers: named parameters, groups, the learning rate, named state, and steps that the device may skip.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_limit.hpp"
#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/skippable_step.hpp"
#include "npu_train/base/squared_norm.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/registry.hpp"
#include "npu_train/optim/param_groups.hpp"

namespace npu_train {

/// An optimizer over a ParameterSet.
///
/// It shares the tensors by handle and updates them in place, even if the model replaces its own handles. Parameters without a gradient and
/// their state stay unchanged. If the memory format of a parameter changes (channels_last), its state follows at the next step.
class Optimizer : public SkippableStep, public Stateful {
 public:
  /// Error(Usage) for a parameter that is not a leaf, not dense in memory (an expanded tensor, a view with gaps), of an integer type, or in
  /// a group that is not in `groups`; also for a factor of a group that is negative or at least 1e30.
  Optimizer(ParameterSet parameters, double lr, std::vector<GroupOptions> groups);

  /// Returns the name in the registry.
  virtual std::string name() const = 0;

  /// Returns the options as in a configuration ("weight_decay: 0.05"), to compare runs. An empty map if the optimizer does not report its
  /// options.
  virtual ConfigNode options() const { return ConfigNode::map(); }

  /// Returns whether the optimizer supports slices of parameters (Parameter::slice): each element is updated independently of others,
  /// except for norms that set_norm_reduction() completes.
  virtual bool takes_slices() const { return false; }
  /// Sets the reduction for an optimizer that needs norms of complete tensors but has slices. It receives the stacked SquaredNorm::parts of
  /// this rank's slices and adds those of the other ranks, in place. All ranks pass equal shapes.
  void set_norm_reduction(NormReduction reduce) { norm_reduction_ = std::move(reduce); }

  /// Updates the parameters from their gradients. If `decision.found_inf` is not 0, parameters and state stay bit-identical; the decision
  /// is made on the device of that tensor. The gradients are first multiplied by `decision.inv_scale` in place.
  void step(const StepDecision& decision = {}) override;

  /// Sets bounds for the parameters with these names, their slices and masters, applied after each later step.
  void set_limits(std::vector<ParameterLimit> limits) { limits_ = std::move(limits); }

  /// Replaces the set of parameters. Parameters with the name and slice of a previous one keep its state; others start with initial state.
  /// Error(Usage) as in the constructor, without a change.
  void set_parameters(ParameterSet parameters);

  /// Sets the base learning rate, which each group multiplies by its lr_mult. A TrainLoop calls it at every step according to its schedule;
  /// a callback must use TrainLoop::set_lr_factor() instead.
  void set_lr(double lr) { lr_ = lr; }
  double lr() const { return lr_; }

  void zero_grad(bool set_to_none = true) { parameters_.zero_grad(set_to_none); }
  const ParameterSet& parameters() const override { return parameters_; }
  const std::vector<GroupOptions>& groups() const { return groups_; }

  /// Returns the live tensors with keys "<slot>/<parameter>" ("momentum/fc.weight"), and the value "optimizer". Tensors of slices if slices
  /// are updated.
  State state() const override;
  /// Copies the saved state, of any device and dtype; slices take their part of complete tensors. Error(Checkpoint), without a change,
  /// names entries that are missing, unknown or have a different shape, or the other optimizer that saved the state.
  void load_state(const State& state) override;

 protected:
  /// The state of a parameter, initially zero. LikeParameter: a tensor of its shape, strides and dtype. Wide: at least fp32, for values
  /// beyond the range of fp16 (squares of gradients). Number: one fp32 number.
  enum class SlotKind { LikeParameter, Wide, Number };
  struct Slot {
    std::string name;
    SlotKind kind;
    std::vector<at::Tensor> tensors;  ///< entry i belongs to parameter i
  };
  void add_slot(const std::string& name, SlotKind kind);
  /// Assigns groups to a new set of parameters (set_parameters) by the rules of the constructor.
  virtual ParameterSet grouped(ParameterSet parameters) const { return parameters; }

  /// Parameters with gradients that share device, dtype and group; the lists correspond.
  struct Bucket {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;           ///< in the strides of the parameters
    std::vector<std::vector<at::Tensor>> slots;  ///< in the order of add_slot() calls
    double lr;
    double decay_mult;
    at::Tensor found_inf;  ///< fp32, exactly 0 or 1, on the bucket's device; undefined: always step
  };
  /// Empty if not set.
  const NormReduction& norm_reduction() const { return norm_reduction_; }
  /// Whether the parameters of a bucket are fp16 or bf16.
  static bool is_low_precision(const Bucket& bucket);
  /// Updates one bucket. Its gradients are unscaled and in the parameters' layout.
  virtual void update(Bucket& bucket) = 0;

 private:
  void check_parameters(const ParameterSet& parameters) const;
  void keep_limits(const at::Tensor& found_inf) const;
  std::vector<Bucket> make_buckets();
  void follow_layout(size_t i);
  static at::Tensor fresh_state(const at::Tensor& parameter, SlotKind kind);

  ParameterSet parameters_;
  double lr_;
  std::vector<GroupOptions> groups_;
  std::vector<Slot> slots_;
  NormReduction norm_reduction_;
  std::vector<ParameterLimit> limits_;
};

/// Optimizers by name. The factory receives the parameters that the Precision has prepared.
using OptimizerRegistry = Registry<std::unique_ptr<Optimizer>, const ParameterSet&>;

/// sgd, adam, adamw, lamb.
void add_builtin_optimizers(OptimizerRegistry& registry);

}  // namespace npu_train
