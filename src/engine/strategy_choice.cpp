#include "engine/strategy_choice.hpp"

#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/config_rules.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {
namespace {

constexpr double kFp32 = 4, kLow = 2;  // bytes per element
constexpr double kMostSlots = 4;
constexpr double kShareOfState = 0.5;  // limit for the state, as a share of the device's memory
constexpr int64_t kProbed = 8;         // elements per dimension in small_optimizer()

// Returns parameters with the same names and numbers of dimensions, but almost without memory.
ParameterSet in_small(const ParameterSet& trained) {
  ParameterSet out;
  for (const auto& p : trained) {
    std::vector<int64_t> sizes(p.value.sizes().begin(), p.value.sizes().end());
    for (auto& size : sizes) size = std::min(size, kProbed);
    auto value = at::zeros(sizes, at::kFloat);
    value.mutable_grad() = at::zeros(sizes, at::kFloat);
    out.add({.name = p.name, .value = value.set_requires_grad(true), .group = p.group});
  }
  return out;
}

std::unique_ptr<Optimizer> small_optimizer(const ParameterSet& trained, const RunConfig& config, const Parts& parts) {
  auto part = config.optimizer;
  for (const char* key : {"groups", "layer_decay"}) part.options.erase(key);  // they may name frozen parameters, and do not affect memory
  return parts.optimizers.make(part, "optimizer", in_small(trained));
}

bool has_masters(const std::string& precision) { return precision.ends_with("-true") && precision != "32-true"; }

// Returns the state for an optimizer with `slots` bytes of state per element.
TrainingState of_slots(const ParameterSet& trained, const RunConfig& config, double slots, bool offloads) {
  const auto elements = static_cast<double>(trained.numel());
  const bool low = has_masters(config.precision);
  const double averages = config.average.enabled ? kFp32 : 0;
  const double masters = low ? kFp32 : 0;  // masters are always on the device, even if the optimizer is on the host
  return {.parameters = elements * (low ? kLow : kFp32),
          .gradients = elements * kFp32,
          .optimizer = elements * (masters + (offloads ? 0 : slots + averages))};
}

}  // namespace

double TrainingState::divided(Sharding sharding, int ranks) const {
  const auto part = [&](double bytes, Sharding from) { return sharding >= from ? bytes / ranks : bytes; };
  return part(parameters, Sharding::Parameters) + part(gradients, Sharding::Gradients) + part(optimizer, Sharding::Optimizer);
}

TrainingState most_state_of(const ParameterSet& trained, const RunConfig& config, bool offloads) {
  return of_slots(trained, config, kMostSlots * kFp32, offloads);
}

TrainingState state_of(const ParameterSet& trained, const RunConfig& config, const Parts& parts, bool offloads) {
  if (trained.numel() == 0) return {};
  const auto optimizer = small_optimizer(trained, config, parts);
  optimizer->step();
  double slots = 0;
  for (const auto& [key, tensor] : optimizer->state().tensors) slots += static_cast<double>(tensor.nbytes());
  return of_slots(trained, config, slots / static_cast<double>(optimizer->parameters().numel()), offloads);
}

Sharding least_sharding(const TrainingState& state, double device_bytes, double frozen, int ranks, Sharding most) {
  for (const auto sharding : {Sharding::None, Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters})
    if (sharding == most || frozen + state.divided(sharding, ranks) <= kShareOfState * device_bytes) return sharding;
  return most;
}

Sharding most_sharding(const RunConfig& config, const ParameterSet& trained, Sharding most, const Parts& parts) {
  const auto& dist = config.dist;
  if (most == Sharding::None || !config.optimizers.empty()) return Sharding::None;
  if (dist.compressed().has_error_feedback() || !small_optimizer(trained, config, parts)->takes_slices()) return Sharding::None;
  if (most < Sharding::Parameters || config.trainer.sync_batchnorm || dist.shard_by != "elements" || dist.has_groups() ||
      dist.in_flight > 0)
    return Sharding::Gradients;
  if (!detail::is_own_part(parts.tasks, builtin_parts().tasks, config.task.name)) return Sharding::Gradients;
  Model none;
  none.module = std::make_shared<torch::nn::Module>();
  none.forward = [](const at::Tensor& input) { return input; };
  const auto task = parts.tasks.make(config.task, "task", none, parts.metrics);
  return dynamic_cast<ComparesRanks*>(task.get()) != nullptr ? Sharding::Gradients : Sharding::Parameters;
}

}  // namespace npu_train
