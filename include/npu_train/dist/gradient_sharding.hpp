/// Sharding of complete parameters without a Trainer: each rank sums the gradients of its own parameters, updates only these, and keeps
/// optimizer state only for these.
///
///   auto group = npu_train::ProcessGroup::from_environment();
///   npu_train::GradientSharding sharding(*model, /*num_shards=*/8, "layer", group);
///   sharding.apply_sharding(optimizer);  // from npu_train or torch::optim; from now on it updates only this rank's parameters
///   for (...) {
///     optimizer.zero_grad();
///     (loss_fn(model->forward(x), y) / group->size()).backward();
///     sharding.shard_gradients();        // this rank's gradients are sums over ranks, the others are dropped
///     optimizer.step();
///     sharding.gather_parameters();      // every rank has all parameters again
///     model->zero_grad();
///   }
///
/// Rank r of N owns the shards r, N + r, 2N + r, ... In a Trainer, `dist.shard_by` divides parameters in the same way for
/// `trainer.strategy: zero1` and `zero2`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train {

/// Returns the shard of each parameter, in order. With `shard_by` "layer", it is the index of the parameter's layer modulo `shards`; a
/// layer is the module that a parameter belongs to, and layers are numbered in the order of the set. With "parameter_size", parameters are
/// assigned from the largest to the smallest, each to the shard with the fewest elements. Error(Usage) for another `shard_by`, or unless
/// `shards` is between 1 and 2^20.
std::vector<int> shards_of(const ParameterSet& parameters, int shards, const std::string& shard_by);

class GradientSharding {
 public:
  /// Without a group, one process owns all shards.
  explicit GradientSharding(ParameterSet parameters, int num_shards = 8, const std::string& shard_by = "layer",
                            std::shared_ptr<ProcessGroup> group = nullptr);
  /// Takes all parameters of a torch::nn::Module.
  template <class Model>
  requires requires(const Model& m) { m.named_parameters(); }
  explicit GradientSharding(const Model& model, int num_shards = 8, const std::string& shard_by = "layer",
                            std::shared_ptr<ProcessGroup> group = nullptr)
      : GradientSharding(named(model), num_shards, shard_by, std::move(group)) {}

  int num_shards() const { return num_shards_; }
  /// Returns the shard of a parameter; `name` may be any name of a tied parameter. Error(Usage) if there is no such parameter.
  int get_shard_for_param(const std::string& name) const;
  /// Whether this rank updates the parameter.
  bool is_own(const std::string& name) const { return owner(get_shard_for_param(name)) == rank(); }
  /// Returns the parameters that this rank updates.
  ParameterSet own() const;

  /// Restricts an optimizer of npu_train or torch::optim to the parameters of this rank. Their group options and state are kept; the state
  /// of all other parameters is released. Error(Usage) if the optimizer has a parameter that is not in this sharding.
  template <class Optimizer>
  void apply_sharding(Optimizer& optimizer) const;
  /// Releases the state of other ranks' parameters in an optimizer of torch::optim.
  template <class Optimizer>
  void shard_optimizer_states(Optimizer& optimizer) const;

  /// Replaces the gradients of this rank's parameters by their sums over ranks, added in rank order; a parameter without a gradient on any
  /// rank has none. Releases the gradients of other parameters. Every rank must call it.
  void shard_gradients() const;
  /// Sends each parameter from the rank that updated it to all other ranks. Every rank must call it.
  void gather_parameters() const;

 private:
  struct Packed;
  template <class Model>
  static ParameterSet named(const Model& model) {
    ParameterSet out;
    for (const auto& p : model.named_parameters()) out.add({.name = p.key(), .value = p.value()});
    return out;
  }
  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  int ranks() const { return group_ == nullptr ? 1 : group_->size(); }
  int owner(int shard) const { return shard % ranks(); }
  bool is_own(const at::Tensor& parameter) const;
  std::vector<Packed> packed() const;

  ParameterSet parameters_;
  int num_shards_;
  std::vector<int> shards_;
  std::shared_ptr<ProcessGroup> group_;
};

template <class Optimizer>
void GradientSharding::apply_sharding(Optimizer& optimizer) const {
  if constexpr (requires { optimizer.param_groups(); }) {
    shard_optimizer_states(optimizer);
    for (auto& group : optimizer.param_groups())  // keeps the options of each group
      std::erase_if(group.params(), [&](const at::Tensor& p) { return !is_own(p); });
  } else {
    optimizer.set_parameters(optimizer.parameters().filter([&](const Parameter& p) { return is_own(p.value); }));
  }
}

template <class Optimizer>
void GradientSharding::shard_optimizer_states(Optimizer& optimizer) const {
  for (auto& group : optimizer.param_groups())
    for (const auto& p : group.params())
      if (!is_own(p)) optimizer.state().erase(p.unsafeGetTensorImpl());
}

}  // namespace npu_train
