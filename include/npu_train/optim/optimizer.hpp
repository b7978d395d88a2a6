/// Common parts of all optimizers: named parameters, groups, the learning rate, named state, and steps that the device may skip.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/skippable_step.hpp"
#include "npu_train/base/squared_norm.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/registry.hpp"
#include "npu_train/optim/param_groups.hpp"

namespace npu_train {

/// An optimizer over a ParameterSet.
///
/// It shares the tensors by handle and updates them in place, even if the model replaces its own handles. A parameter without a gradient
/// stays unchanged, and so does its state. If the memory format of a parameter changes (channels_last), the format of its state changes at
/// the next step.
class Optimizer : public SkippableStep, public Stateful {
 public:
  /// Error(Usage) for a parameter that is not a leaf, not dense in memory (an expanded tensor, a view with gaps), of an integer type, or in
  /// a group that is not in `groups`. Also Error(Usage) for a factor of a group that is negative or at least 1e30.
  Optimizer(ParameterSet parameters, double lr, std::vector<GroupOptions> groups);
  /// Uses the default groups: with `no_decay`, biases and normalisation parameters have no weight decay.
  Optimizer(ParameterSet parameters, double lr, bool no_decay);

  /// Returns the name in the registry.
  virtual std::string name() const = 0;

  /// Returns the options as in a configuration ("weight_decay: 0.05"), for a comparison of runs. An empty map if the optimizer does not
  /// report its options.
  virtual ConfigNode options() const { return ConfigNode::map(); }

  /// Returns whether the optimizer supports slices of parameters (Parameter::slice): each element is updated independently of others,
  /// except for norms that set_norm_reduction() completes.
  virtual bool takes_slices() const { return false; }
  /// Sets the reduction for an optimizer that has slices but needs norms of complete tensors. The function receives the stacked
  /// SquaredNorm::parts of this rank's slices and adds those of the other ranks, in place. All ranks pass equal shapes.
  void set_norm_reduction(NormReduction reduce) { norm_reduction_ = std::move(reduce); }

  /// Updates the parameters from their gradients. If `decision.found_inf` is not 0, parameters and state stay bit-identical; the decision
  /// is made on the device of that tensor. The gradients are first multiplied by `decision.inv_scale` in place.
  void step(const StepDecision& decision = {}) override;

  /// Sets bounds for the parameters with these names, and for their slices and masters. Each later step applies them.
  void set_limits(std::vector<ParameterLimit> limits) { limits_ = std::move(limits); }

  /// Replaces the set of parameters. A parameter with the name and slice of a previous one keeps the state of that one; any other parameter
  /// starts with initial state. Error(Usage) as in the constructor, without a change.
  void set_parameters(ParameterSet parameters);

  /// Sets the base learning rate, which each group multiplies by its lr_mult. A TrainLoop calls it at every step according to its schedule;
  /// a callback must use TrainLoop::set_lr_factor() instead.
  void set_lr(double lr) { lr_ = lr; }
  double lr() const { return lr_; }

  /// Applies `rules`: the parameters that match a pattern get the learning rate and weight decay of its group, and with layer_decay each
  /// block gets its own learning rate. `all` are the parameters of the model, including frozen ones that may be trained later; by default
  /// the parameters of the optimizer. Error(Usage), without a change, for a pattern that matches no parameter of `all`, and for a parameter
  /// that two patterns match.
  void set_groups(const ParameterGroups& rules, const ParameterSet& all = {});

  void zero_grad(bool set_to_none = true) { parameters_.zero_grad(set_to_none); }
  const ParameterSet& parameters() const override { return parameters_; }
  const std::vector<GroupOptions>& groups() const { return groups_; }

  /// Returns the live tensors under the keys "<slot>/<parameter>" ("momentum/fc.weight"), and name() as the value "optimizer". If the
  /// optimizer updates slices, the tensors are slices, too.
  State state() const override;
  /// Copies the saved state, which may have any device and dtype. The state of a slice takes its part of a complete tensor.
  /// Error(Checkpoint), without a change, if an entry is missing, unknown or of a different shape, or if another optimizer saved the state;
  /// the message names the entry or that optimizer.
  void load_state(const State& state) override;

 protected:
  /// Kinds of state of a parameter. LikeParameter: a tensor of its shape, strides and dtype. Wide: at least fp32, for values beyond the
  /// range of fp16 (squares of gradients). Number: one fp32 number. Rows and Columns: Wide with size 1 in the last dimension (Rows) or the
  /// one before it (Columns), for an optimizer that takes no slices.
  enum class SlotKind { LikeParameter, Wide, Number, Rows, Columns };
  /// Returns whether a parameter has a slot.
  using HasSlot = std::function<bool(const Parameter&)>;
  struct Slot {
    std::string name;
    SlotKind kind;
    double initial;
    HasSlot has;
    std::vector<at::Tensor> tensors;  ///< entry i belongs to parameter i; undefined if the parameter does not have the slot
  };
  /// Adds a kind of state; all parameters have it if `has` is empty.
  void add_slot(const std::string& name, SlotKind kind, double initial = 0, HasSlot has = {});
  /// Assigns groups to a new set of parameters (set_parameters) by the rules of the constructor.
  virtual ParameterSet grouped(ParameterSet parameters) const;

  /// Parameters with gradients that have the same device, dtype and group. Entries with the same index in the lists belong together.
  struct Bucket {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;           ///< with the strides of the parameters
    std::vector<std::vector<at::Tensor>> slots;  ///< in the order of add_slot() calls
    double lr;
    double decay_mult;
    double own_decay;      ///< value of GroupOptions::weight_decay
    at::Tensor found_inf;  ///< fp32, exactly 0 or 1, on the bucket's device; undefined: always step

    /// Returns the weight decay of this group; `weight_decay` is the option of the optimizer.
    double decay(double weight_decay) const { return decay_mult * (own_decay >= 0 ? own_decay : weight_decay); }
  };
  /// Returns an empty function if none is set.
  const NormReduction& norm_reduction() const { return norm_reduction_; }
  /// Returns whether the parameters of a bucket are fp16 or bf16.
  static bool is_low_precision(const Bucket& bucket);
  /// Updates one bucket. Its gradients are unscaled and in the parameters' layout.
  virtual void update(Bucket& bucket) = 0;

 private:
  void check_parameters(const ParameterSet& parameters) const;
  ParameterSet with_rules(ParameterSet parameters);
  void keep_limits(const at::Tensor& found_inf) const;
  std::vector<Bucket> make_buckets();
  void follow_layout(size_t i);
  static at::Tensor fresh_state(const Parameter& parameter, const Slot& slot);

  ParameterSet parameters_;
  double lr_;
  bool no_decay_ = false;
  std::vector<GroupOptions> groups_;
  std::vector<int> own_groups_;  // for each group that set_groups() has appended: index of the original group that it replaces
  std::unordered_map<std::string, GroupOptions> rules_;  // rules of set_groups(), by parameter
  std::vector<Slot> slots_;
  NormReduction norm_reduction_;
  std::vector<ParameterLimit> limits_;
};

namespace detail {
/// Options of an optimizer, with the keys `groups` and `layer_decay`.
template <Configurable Options>
struct WithGroups : Options, ParameterGroups {
  static const ConfigTable<WithGroups>& config_table() {
    static const auto table =
        ConfigTable<WithGroups>(Options::config_table().title()).template inherited<Options>().template inherited<ParameterGroups>();
    return table;
  }
};
}  // namespace detail

/// Optimizers by name. The factory receives the parameters that the Precision has prepared. Each optimizer has the keys of ParameterGroups
/// in addition to its own.
class OptimizerRegistry : public Registry<std::unique_ptr<Optimizer>, const ParameterSet&, const ParameterSet&> {
 public:
  using Registry::Registry;

  template <Configurable Options, class Fn>
  void add(const std::string& name, const std::string& doc, Fn factory, const Options& defaults = {}) {
    using Grouped = detail::WithGroups<Options>;
    Registry::add<Grouped>(
        name, doc,
        [factory](const Grouped& options, const ParameterSet& parameters, const ParameterSet& all) {
          std::unique_ptr<Optimizer> optimizer = factory(static_cast<const Options&>(options), parameters);
          optimizer->set_groups(options, all);
          return optimizer;
        },
        Grouped{{defaults}, {}});
  }

  /// `all`: see Optimizer::set_groups().
  std::unique_ptr<Optimizer> make(const PartConfig& part, const std::string& path, const ParameterSet& parameters,
                                  const ParameterSet& all = {}) const {
    return Registry::make(part, path, parameters, all);
  }
};

/// Adds sgd, adam, adamw, lamb, rmsprop, adagrad, adadelta, lion, adafactor and muon.
void add_builtin_optimizers(OptimizerRegistry& registry);

}  // namespace npu_train
