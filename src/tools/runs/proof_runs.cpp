#include "npu_train/tools/runs/proof_runs.hpp"

#include <algorithm>

#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/data/shapes_only.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

/// Removes wall times, which are part of the state of an epoch but never repeat.
State without_times(State state) {
  state.values.erase("epoch/seconds");
  state.values.erase("epoch/data_wait");
  return state;
}

}  // namespace

TooFewSteps::TooFewSteps(const char* where, int64_t taken_steps, int64_t needed_steps)
    : Error(ErrorKind::Usage, where, str_cat("the run ends after ", taken_steps, " steps, but ", needed_steps, " are needed"),
            "increase trainer.max_epochs, or use fewer steps (--verify-steps of train_app, --steps of npu_tool)"),
      taken(taken_steps),
      needed(needed_steps) {}

RunConfig without_side_effects(RunConfig config) {
  config.output.dir = "";
  config.sections.clear();
  config.callbacks.clear();
  config.trainer.profiler = "none";
  config.trainer.max_time = -1;
  config.trainer.num_sanity_val_steps = 0;
  config.trainer.check_val_every_n_epoch = 0;
  config.trainer.fast_dev_run = false;
  config.early_stopping = {};
  if (config.average.kind != "ema") {  // other averages are made at the end, which proof runs do not reach, but use memory from the start
    constexpr double kNever = 1e15;
    config.average = {.enabled = config.average.enabled, .kind = "swa", .start = kNever, .of = config.average.of};
  }
  const auto* monitor = config.lr_scheduler.options.find("monitor");
  const bool of_training = monitor != nullptr && monitor->is_scalar() && monitor->scalar().starts_with("train/");
  if (config.lr_scheduler.name == "plateau" && !of_training) config.lr_scheduler.options.set("monitor", ConfigNode("train/loss"));
  return config;
}

RunConfig without_files(RunConfig config) {
  config = without_side_effects(std::move(config));
  config.model.options.erase("weights");
  return config;
}

RunConfig without_limits(RunConfig config) {
  config.sim_npu.hbm = "1024TiB";
  config.sim_npu.unsupported_ops = "ignore";
  return config;
}

Parts shapes_only(const Parts& parts, const RunConfig& config) {
  int64_t classes = 0;
  if (!config.model.name.empty()) {
    ConfigProblems problems;
    const auto model = parts.models.resolve(config.model, "model", problems);
    problems.throw_if_any();
    const auto* node = model.options.find("num_classes");
    if (node != nullptr && node->is_scalar()) classes = std::stoll("0" + node->scalar());
  }
  auto out = parts;
  out.datasets = npu_train::shapes_only(parts.datasets, classes);
  return out;
}

PartConfig model_for_data(const RunConfig& config, const Parts& parts) {
  const auto fields = parts.models.describe(config.model.name);
  const bool open = std::any_of(fields.begin(), fields.end(), [&](const FieldInfo& field) {
    return (field.name == "num_classes" || field.name == "image_size") && config.model.options.find(field.name) == nullptr;
  });
  if (!open || config.data.name.empty()) return config.model;
  const auto data = shapes_only(parts, config).datasets.make(config.data, "data", parts.transforms);
  return with_data_defaults(config.model, data.info(), data.options.image_size, parts);
}

Trainer trained_until(const RunConfig& config, const Parts& parts, int64_t steps, const char* where) {
  Trainer trainer(config, parts);
  trainer.loop().set_max_steps(steps);  // not set in the configuration, because the schedule must have the length of the real run
  trainer.fit();
  if (trainer.loop().global_step() != steps) throw TooFewSteps(where, trainer.loop().global_step(), steps);
  return trainer;
}

RunState snapshot(Trainer& trainer) {
  auto state = trainer.state();
  for (auto& [part, content] : state)
    for (auto& [name, tensor] : content.tensors) tensor = tensor.detach().to(at::kCPU).clone();
  return state;
}

std::vector<std::string> differing_parts(const RunState& a, const RunState& b) {
  std::vector<std::string> out;
  for (const auto& [part, content] : a) {
    const auto other = b.find(part);
    if (other == b.end() || digest(without_times(content)) != digest(without_times(other->second))) out.push_back(part);
  }
  return out;
}

}  // namespace npu_train::detail
