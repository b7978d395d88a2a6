// Derives the work and the memory of a step from a configuration.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "npu_train/base/file_backed_memory.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/nn/summary.hpp"
#include "npu_train/tools/memory/memory_prediction.hpp"
#include "npu_train/tools/plan/plan.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

constexpr int kMostSimulated = 32;  // largest world size whose memory is recorded; larger ones are extrapolated

// Returns, by layer path, the share of the backward pass after which the gradients of the layer are complete.
std::map<std::string, double> ready_by_layer(const ModelSummary& summary) {
  std::map<std::string, double> out;
  int64_t before = 0;
  for (const auto& layer : summary.layers) {
    out.emplace(layer.name, summary.flops > 0 ? 1 - static_cast<double>(before) / static_cast<double>(summary.flops) : 1.0);
    before += layer.flops;
  }
  return out;
}

// Returns the share that `by_layer` has for the innermost layer that contains the parameter; 1 if there is none.
double ready_of(const std::map<std::string, double>& by_layer, std::string name) {
  for (auto dot = name.rfind('.'); dot != std::string::npos; dot = name.rfind('.')) {
    name.resize(dot);
    if (const auto found = by_layer.find(name); found != by_layer.end()) return found->second;
  }
  return 1;
}

size_t unit_of(const Model& model, const std::string& name) {
  for (size_t b = 0; b < model.blocks.size(); ++b)
    if (name.starts_with(model.blocks[b].name + ".")) return b + 1;
  return 0;
}

// Whether several blocks use the parameter, so that it belongs to none of them.
bool is_shared(const Model& model, const ParameterSet& parameters, const std::string& name) {
  for (const auto& [alias, first] : parameters.aliases())
    if (first == name && unit_of(model, alias) != unit_of(model, first)) return true;
  return false;
}

// Returns the share of the forward pass that is recomputed: all blocks except the last one. With a memory budget, this is an upper limit.
double recomputed_share(const std::string& checkpointing, const std::vector<double>& units) {
  if (CheckpointPlan::parse(checkpointing).kind == CheckpointPlan::Kind::None || units.empty()) return 0;
  return std::accumulate(units.begin(), units.end() - 1, 0.0);
}

// Records the memory of a rank with the fewest and with the most shards. In between, interpolates in proportion to 1 / shards.
class RecordedMemory {
 public:
  RecordedMemory(const RunConfig& config, const Parts& parts, const std::vector<int>& ranks)
      : config_(detail::without_limits(config)), parts_(parts) {
    for (const int n : ranks) {
      const int recorded = std::clamp(n, 2, kMostSimulated);
      few_ = std::min(few_, recorded);
      many_ = std::max(many_, recorded);
    }
  }

  // Records only the ranks that together hold all shards, as a world of their own.
  int64_t operator()(const Placement& placement) {
    const int shards = placement.shards();
    // Only the presence of groups matters, since the recorded rank is the first of its group.
    const std::string groups = placement.group_size == 0 ? "none" : placement.groups() > 1 ? "1" : std::to_string(kMostSimulated);
    const auto recorded = [&](const std::string& strategy, int ranks) { return this->recorded(strategy, ranks, groups); };
    if (placement.ranks == 1) return recorded("auto", 1);
    if (placement.strategy == "ddp") return recorded("ddp", few_);
    if (shards <= few_ || few_ == many_) return recorded(placement.strategy, std::min(shards, kMostSimulated));
    const double low = 1.0 / many_, high = 1.0 / few_, at = (1.0 / shards - low) / (high - low);
    const auto of_many = static_cast<double>(recorded(placement.strategy, many_));
    const auto of_few = static_cast<double>(recorded(placement.strategy, few_));
    return static_cast<int64_t>(of_many + at * (of_few - of_many));
  }

 private:
  int64_t recorded(const std::string& strategy, int ranks, const std::string& groups) {
    const auto [entry, is_new] = known_.emplace(std::tuple{strategy, ranks, groups}, 0);
    if (!is_new) return entry->second;
    auto config = config_;
    config.trainer.strategy = strategy;
    config.dist.shard_size = "auto";
    config.dist.group_size = groups;
    return entry->second = predict_memory(config, {.variants = false, .ranks = ranks}, parts_).peak.reserved;
  }

  RunConfig config_;
  const Parts& parts_;
  int few_ = kMostSimulated, many_ = 2;
  std::map<std::tuple<std::string, int, std::string>, int64_t> known_;
};

}  // namespace

StepWork step_work(const RunConfig& given, const Parts& parts) {
  return translated("plan", [&] {
    auto config = detail::without_files(detail::without_limits(given));
    config.trainer.strategy = "auto";
    const FileBackedMemory nothing_is_computed{FileBackedMemory::SharedPages()};
    Trainer trainer(config, detail::shapes_only(parts, config));
    trainer.setup();
    const auto& run = trainer.loop().parts();
    const auto& model = trainer.model();
    const auto summary = summarize(model);
    const auto all = parameters_of(*model.module);
    const auto ready = ready_by_layer(summary);
    StepWork out{.model = config.model.name,
                 .flops = static_cast<double>(summary.flops),
                 .batch = run.train_loader->options().batch_size,
                 .micro_batches = config.trainer.accumulate_grad_batches,
                 .dist = config.dist,
                 .between_devices = config.device != "cpu" && config.dist.backend != "gloo"};
    const auto& on = run.device;
    check_collectives(1, on, config.dist);
    out.in_rings = out.between_devices && backend_of(on).capabilities(on).ranks_by_powers_of_two;
    out.divides_parameters = config.dist.in_flight == 0 && !config.dist.compressed().has_error_feedback() && !config.trainer.sync_batchnorm;
    const auto cast = autocast_weights(model, config, run.device, run.optimizer->parameters(), *run.precision);
    const auto low = static_cast<int64_t>(c10::elementSize(run.precision->low_precision_dtype()));
    const std::set<std::string> gathered_low(cast.begin(), cast.end());
    for (const auto& p : run.optimizer->parameters())
      out.parameters.push_back(
          {.elements = p.value.numel(),
           .element_bytes = static_cast<int64_t>(p.value.element_size()),
           .model_bytes = gathered_low.contains(p.name) ? low : static_cast<int64_t>(all.find(p.name)->value.element_size()),
           .has_master = all.find(p.name)->value.scalar_type() != p.value.scalar_type(),
           .ready = ready_of(ready, p.name),
           .unit = is_shared(model, all, p.name) ? 0 : unit_of(model, p.name),
           .rows = p.value.dim() > 1 ? p.value.size(0) : 0});
    for (const auto& block : summary.blocks)
      out.units.push_back(summary.flops > 0 ? static_cast<double>(block.flops) / static_cast<double>(summary.flops) : 0);
    out.recomputed = recomputed_share(config.trainer.gradient_checkpointing, out.units);
    for (const auto& one : run.optimizers)
      for (const auto& [name, tensor] : one.optimizer->state().tensors) out.state_bytes += static_cast<double>(tensor.nbytes());
    if (run.average != nullptr)
      for (const auto& [name, tensor] : run.average->state().tensors) out.state_bytes += static_cast<double>(tensor.nbytes());
    return out;
  });
}

Plan plan_run(const RunConfig& config, const PlanOptions& options, const Parts& parts) {
  const auto work = step_work(config, parts);
  if (!options.with_memory || options.ranks.empty()) return plan_steps(work, options);
  // Large tensors of the recorded steps are stored in files once only half of the free memory is left.
  const auto folder = FileBackedMemory::temporary_folder();
  const auto files = folder.empty() ? nullptr : std::make_unique<FileBackedMemory>(folder, free_host_bytes() / 2);
  RecordedMemory memory(config, parts, options.ranks);
  return plan_steps(work, options, [&](const Placement& placement) { return memory(placement); });
}

}  // namespace npu_train
