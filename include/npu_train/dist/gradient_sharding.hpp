/// Complete parameters divided among ranks, without a Trainer: each rank sums, updates and keeps the state of the parameters of its shards.
///
///   auto group = npu_train::ProcessGroup::from_environment();
///   npu_train::GradientSharding sharding(*model, /*num_shards=*/8, "layer", group);
///   sharding.apply_sharding(optimizer);  // of npu_train or of torch::optim; updates this rank's parameters only
///   for (...) {
///     optimizer.zero_grad();
///     (loss_fn(model->forward(x), y) / group->size()).backward();
///     sharding.shard_gradients();        // this rank's are sums over ranks, others are dropped
///     optimizer.step();
///     sharding.gather_parameters();      // every rank has all of them again
///     model->zero_grad();
///   }
///
/// Rank r of N has the shards r, N + r, 2N + r, ... In a Trainer, `dist.shard_by` divides what `trainer.strategy: zero1` or `zero2` shards
/// in the same way.
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

/// The shard of each parameter, in order. layer: the index of the layer (the module that a parameter belongs to, in the order of the set)
/// modulo `shards`. parameter_size: from the largest parameter to the smallest, each to the shard with the fewest elements. Error(Usage)
/// for another `shard_by` or less than one shard.
std::vector<int> shards_of(const ParameterSet& parameters, int shards, const std::string& shard_by);

class GradientSharding {
 public:
  /// Without a group, for one process, which has all shards.
  explicit GradientSharding(ParameterSet parameters, int num_shards = 8, const std::string& shard_by = "layer",
                            std::shared_ptr<ProcessGroup> group = nullptr);
  /// Of a torch::nn::Module: all its parameters.
  template <class Model>
  requires requires(const Model& m) { m.named_parameters(); }
  explicit GradientSharding(const Model& model, int num_shards = 8, const std::string& shard_by = "layer",
                            std::shared_ptr<ProcessGroup> group = nullptr)
      : GradientSharding(named(model), num_shards, shard_by, std::move(group)) {}

  int num_shards() const { return num_shards_; }
  /// By its name or another name of a tied parameter. Error(Usage) if there is none, in place of a shard that it is not in.
  int get_shard_for_param(const std::string& name) const;
  /// Whether this rank updates it.
  bool is_own(const std::string& name) const { return owner(get_shard_for_param(name)) == rank(); }
  /// The parameters of this rank.
  ParameterSet own() const;

  /// The optimizer updates the parameters of this rank from now on, with the options of their groups and the state that it has of them;
  /// state of others is released. For an Optimizer of npu_train and one of torch::optim. Error(Usage) if it has a parameter that is not
  /// known here.
  template <class Optimizer>
  void apply_sharding(Optimizer& optimizer) const;
  /// Releases the state of parameters of other ranks in an optimizer of torch::optim.
  template <class Optimizer>
  void shard_optimizer_states(Optimizer& optimizer) const;

  /// The gradients of this rank's parameters become the sums over ranks, added in the order of ranks; a parameter without a gradient on any
  /// rank has none. Those of other parameters are released. Every rank makes the call.
  void shard_gradients() const;
  /// Every rank gets all parameters from those that have updated them. Every rank makes the call.
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
    for (auto& group : optimizer.param_groups())  // whose options stay
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
