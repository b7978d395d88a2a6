// The collectives that a training step of the engine calls on one rank, and those that the plan expects.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include "npu_train/engine/trainer.hpp"
#include "npu_train/tools/plan/plan.hpp"

namespace npu_train::testing {

/// Numbers of calls by kind, bytes and number of ranks, and the number of small gathers.
struct Recorded {
  std::map<std::tuple<StepCall::Kind, int64_t, int>, int> calls;
  int64_t agreements = 0;

  void note(StepCall::Kind kind, const at::Tensor& t, int ranks) {
    if (ranks > 1) ++calls[{kind, static_cast<int64_t>(t.nbytes()), ranks}];
  }
  void note_agreement(const std::string& own) {
    constexpr size_t kInline = 488;
    agreements += own.size() > kInline ? 2 : 1;
  }
  std::string text() const {
    std::ostringstream out;
    for (const auto& [call, count] : calls)
      out << static_cast<int>(std::get<0>(call)) << " " << std::get<1>(call) << " of " << std::get<2>(call) << " x " << count << ", ";
    out << agreements << " agreements";
    return out.str();
  }
};

using Options = std::vector<std::pair<std::string, std::string>>;

/// Returns a run with `options`: keys of the section dist, and `precision`.
inline RunConfig run_of(const std::string& strategy, int64_t micro_batches, const Options& options) {
  RunConfig c{.device = "cpu", .precision = "32-true"};
  c.model = {.name = "vit_tiny", .options = {{"depth", 3}, {"image_size", 32}, {"patch_size", 8}, {"dim", 48}, {"heads", 3}}};
  c.data = {.name = "generated", .options = {{"train_size", 64}, {"val_size", 8}, {"batch_size", 4}, {"num_workers", "0"}}};
  c.optimizer = {.name = "adamw", .options = {{"lr", 0.001}}};
  c.trainer = {.max_epochs = 1, .threads = 1};
  c.trainer.accumulate_grad_batches = micro_batches;
  c.trainer.strategy = strategy;
  c.output.dir = "";
  auto node = to_node(c.dist);
  node.set("bucket_mib", ConfigNode(0.05));
  for (const auto& [key, value] : options)
    if (key == "precision")
      c.precision = value;
    else
      node.set(key, ConfigNode(value));
  c.dist = bind<DistOptions>(node, "dist");
  return c;
}

/// Records the second step of a run. `group` creates the process group of the run.
inline Recorded recorded(const RunConfig& config,
                         const std::function<std::shared_ptr<ProcessGroup>(std::shared_ptr<Recorded>, const DistOptions&)>& group) {
  auto seen = std::make_shared<Recorded>();
  auto parts = builtin_parts();
  parts.process_group = [&](const DistOptions& dist) { return group(seen, dist); };
  Trainer trainer(config, parts);
  trainer.setup();
  const Batch batch(at::zeros({4, 3, 32, 32}), at::zeros({4}, at::kLong));
  const std::vector<Batch> window(static_cast<size_t>(config.trainer.accumulate_grad_batches), batch);
  trainer.train_step(window);
  *seen = {};
  trainer.train_step(window);
  return *seen;
}

/// Returns the calls that the plan expects of a rank.
inline Recorded planned(const RunConfig& config, const Placement& placement, int rank) {
  const auto work = step_work(config);
  const auto calls = step_calls(work, placement);
  const bool leads = placement.group_size == 0 || rank % placement.group_size == 0;
  Recorded out{.calls = {}, .agreements = calls.agreements};
  for (const auto& call : all_calls(work, placement, calls, leads)) ++out.calls[{call.kind, call.bytes, call.ranks}];
  return out;
}

}  // namespace npu_train::testing
