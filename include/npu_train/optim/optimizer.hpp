/// What all optimizers share: parameters by name, groups, the learning rate, state by name, and steps that the device may skip.
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
/// The tensors are shared by handle: the tensors of the set are updated in place, whatever happens to the model's own handles. Parameters
/// without a gradient stay unchanged, and so does their state. A parameter may change its memory format later (channels_last); its state
/// follows at the next step.
class Optimizer : public SkippableStep, public Stateful {
 public:
  /// Error(Usage) for a parameter that is not a leaf in dense memory (an expanded tensor, a view with gaps), of an integer type, or with a
  /// group that is not in `groups`.
  Optimizer(ParameterSet parameters, double lr, std::vector<GroupOptions> groups);

  /// The name it is registered under.
  virtual std::string name() const = 0;

  /// The options that it was made with, as in a configuration ("weight_decay: 0.05"); equal runs have equal options. An empty map for an
  /// optimizer that does not report its options.
  virtual ConfigNode options() const { return ConfigNode::map(); }

  /// Whether slices of parameters (Parameter::slice) may be given to it: each element is updated from numbers of its own, and from norms
  /// that set_norm_reduction() completes.
  virtual bool takes_slices() const { return false; }
  /// For an optimizer over slices that needs norms of complete tensors: gets SquaredNorm::parts of this rank's slices, stacked, and adds to
  /// them those of the other ranks, in place. Every rank has as many.
  void set_norm_reduction(NormReduction reduce) { norm_reduction_ = std::move(reduce); }

  /// One update from the present gradients. With `gate.found_inf` set, parameters and state stay bit-identical, decided where that
  /// tensor is. With `gate.inv_scale`, gradients are multiplied by it in place first.
  void step(const StepGate& gate = {}) override;

  /// Bounds that parameters of these names keep from the next step on; slices and masters too.
  void set_limits(std::vector<ParameterLimit> limits) { limits_ = std::move(limits); }

  /// Another set to update from now on: parameters that it shares with the present one, by name and slice, keep their state, others begin
  /// with a fresh one. Error(Usage) as the constructor; nothing is changed then.
  void set_parameters(ParameterSet parameters);

  /// The learning rate of every group is this times the group's lr_mult. A TrainLoop sets it at every step, from its schedule: a callback
  /// changes it by TrainLoop::set_lr_factor().
  void set_lr(double lr) { lr_ = lr; }
  double lr() const { return lr_; }

  void zero_grad(bool set_to_none = true) { parameters_.zero_grad(set_to_none); }
  const ParameterSet& parameters() const override { return parameters_; }
  const std::vector<GroupOptions>& groups() const { return groups_; }

  /// Tensors keyed "<slot>/<parameter>" ("momentum/fc.weight"), and the value "optimizer". The tensors are the live ones, of slices where
  /// those are updated.
  State state() const override;
  /// Copies into the state, from any device and dtype: of complete parameters, of which slices take theirs. Error(Checkpoint) names the
  /// entries that are missing, unknown or have a different shape, or the other optimizer that saved the state; nothing is changed then.
  void load_state(const State& state) override;

 protected:
  /// What a kind of state is for each parameter, zero at first: a tensor of its shape, strides and dtype; the same in fp32 at least, for
  /// numbers that leave the range of fp16 (squares of gradients); or one number in fp32.
  enum class SlotKind { LikeParameter, Wide, Number };
  struct Slot {
    std::string name;
    SlotKind kind;
    std::vector<at::Tensor> tensors;  ///< entry i belongs to parameter i
  };
  void add_slot(const std::string& name, SlotKind kind);
  /// The groups that the constructor gave to `parameters`, for those that come later (set_parameters).
  virtual ParameterSet grouped(ParameterSet parameters) const { return parameters; }

  /// Parameters of one device, dtype and group that have gradients, in matching lists.
  struct Bucket {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;           ///< with the strides of the parameters
    std::vector<std::vector<at::Tensor>> slots;  ///< in order of add_slot
    double lr;
    double decay_mult;
    at::Tensor found_inf;  ///< fp32, exactly 0 or 1, on the bucket's device; undefined: always step
  };
  /// Empty without slices.
  const NormReduction& norm_reduction() const { return norm_reduction_; }
  /// Whether the parameters of a bucket are fp16 or bf16.
  static bool is_low_precision(const Bucket& bucket);
  /// Updates one bucket; gradients are ready.
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

/// Optimizers by name. The factory gets the parameters as prepared by the Precision.
using OptimizerRegistry = Registry<std::unique_ptr<Optimizer>, const ParameterSet&>;

/// sgd, adam, adamw, lamb.
void add_builtin_optimizers(OptimizerRegistry& registry);

}  // namespace npu_train
