#include "tools/checklist/device_run.hpp"

#include <ATen/ops/isfinite.h>

#include <algorithm>

#include "npu_train/base/state.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/folder.hpp"
#include "npu_train/tools/analyze/profiler.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

bool is_pinned(const Batch& batch) {
  const auto fields = batch.fields();
  return std::all_of(fields.begin(), fields.end(), [](const auto& field) { return field.second.is_pinned(); });
}

}  // namespace

DeviceRun run_on_device(const RunConfig& config, const Parts& parts, int64_t steps) {
  Trainer trainer(config, parts);
  trainer.loop().set_max_steps(steps);
  const auto& run = trainer.loop().parts();
  Profiler profiler(run.device, {});
  trainer.add_observer(&profiler);
  trainer.fit();
  const auto profile = profiler.profile();
  auto& loader = *run.train_loader;
  DeviceRun out{.steps = profile.windows,
                .batch = loader.options().batch_size,
                .accumulate = trainer.config().trainer.accumulate_grad_batches,
                .can_pin = backend_of(run.device).capabilities(run.device).pinned_memory};
  for (const auto& p : profile.phases)
    if (p.phase == Phase::DataWait) out.waited = p.seconds / profile.seconds;
  loader.begin_epoch(0);
  if (const auto batch = loader.next(); batch && out.can_pin) out.pins = is_pinned(*batch);
  return out;
}

WayBack return_to_cpu(const RunConfig& config, const Parts& parts, int64_t steps) {
  const ScratchFolder scratch("checklist");
  const auto path = (scratch.path / "checkpoint").string();
  WayBack out;
  RunState there;
  {
    auto trainer = trained_until(config, parts, steps, "checklist");
    out.precision = trainer.loop().parts().precision->name();
    there = snapshot(trainer);
    save_checkpoint(path, there, {}, ConfigNode::map());
  }
  auto here = config;
  here.device = "cpu";
  here.precision = out.precision;  // auto could resolve to another precision on the CPU
  Trainer trainer(here, parts);
  trainer.loop().set_max_steps(2 * steps);
  trainer.load_state(load_checkpoint(path), {"rng"});  // the CPU has a different kind of generator
  out.same_weights = digest(snapshot(trainer).at("model")) == digest(there.at("model"));
  trainer.fit();
  const auto weights = snapshot(trainer).at("model").tensors;
  out.finite =
      std::all_of(weights.begin(), weights.end(), [](const auto& named) { return at::isfinite(named.second).all().item().toBool(); });
  return out;
}

}  // namespace npu_train::detail
