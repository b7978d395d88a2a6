#include "engine/config_rules.hpp"

#include "engine/model_precision.hpp"
#include "npu_train/align/config_diff.hpp"
#include "npu_train/align/dump_options.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/data/transform.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/precision/fp32_ops.hpp"
#include "npu_train/precision/loss_scale.hpp"

namespace npu_train::detail {
namespace {

/// `text` of an Error without its "[where] ".
std::string message_of(const Error& e) { return std::string(e.what()).substr(e.where().size() + 3); }

bool is_fp32_mode(const std::string& precision) { return precision == "32-true" || precision == "O0" || precision.starts_with("bf16"); }

void check_data(const RunConfig& config, const std::function<void(const char*, const std::function<void()>&)>& rule) {
  const auto text = [&](const char* key) -> std::string {
    const auto* value = config.data.options.find(key);
    return value != nullptr && value->is_scalar() ? value->scalar() : "";
  };
  if (const auto workers = text("num_workers"); !workers.empty()) rule("data.num_workers", [&] { parse_num_workers(workers); });
}

/// A schedule is arithmetic: made for a run of some length, it shows what its own keys contradict.
void check_schedule(const RunConfig& config, const Parts& parts) {
  if (config.lr_scheduler.name.empty() || !parts.schedules.contains(config.lr_scheduler.name)) return;
  ScheduleContext context;
  context.total_epochs = context.total_steps = 1;
  parts.schedules.make(config.lr_scheduler, "lr_scheduler", context);
}

}  // namespace

const ConfigTable<PlainDataOptions>& PlainDataOptions::config_table() {
  static const auto table = data_fields(ConfigTable<PlainDataOptions>("data"));
  return table;
}

void check_rules(const RunConfig& config, const Parts& parts, const MarkOf& mark_of, ConfigProblems& problems) {
  const auto rule = [&](const char* path, const std::function<void()>& fn) {
    try {
      fn();
    } catch (const Error& e) {
      problems.add(mark_of(path), path, message_of(e));
    }
  };
  const auto refuse = [&](const char* path, bool bad, const auto&... message) {
    if (bad) problems.add(mark_of(path), path, c10::str(message...));
  };
  if (config.device != "auto") rule("device", [&] { Device::parse(config.device); });
  rule("trainer.gradient_checkpointing", [&] { CheckpointPlan::parse(config.trainer.gradient_checkpointing); });
  rule("grad_scaler", [&] { LossScale(config.grad_scaler.loss_scale()); });
  refuse("grad_scaler.enabled", config.grad_scaler.enabled == "true" && is_fp32_mode(config.precision),
         "a loss scale makes no sense with precision ", config.precision,
         ", whose gradients have the range of fp32; hint: leave it at auto, or use precision 16-mixed");
  rule("amp", [&] { amp_modules(config.amp); });
  rule("amp.fp32_ops", [&] { check_fp32_ops(config.amp.fp32_ops); });
  rule("dump.steps", [&] { StepRanges{config.dump.steps}; });
  rule("sim_npu.hbm", [&] {
    const auto bytes = parse_bytes(config.sim_npu.hbm);
    check(bytes && *bytes > 0, ErrorKind::Usage, "sim_npu.hbm", "'", config.sim_npu.hbm, "' is not a size such as 32GiB or 512MiB");
  });
  check_data(config, rule);
  // what a schedule's table finds is among the problems already
  if (problems.empty()) rule("lr_scheduler", [&] { check_schedule(config, parts); });
}

void resolve_transforms(ConfigNode& data, ConfigProblems& problems) {
  const auto registry = builtin_transforms();
  for (const char* list : {"train_transforms", "val_transforms"}) {
    auto* steps = data.find(list);
    if (steps == nullptr) continue;
    const auto path = std::string("data.") + list;
    std::vector<PartConfig> parts;
    ConfigProblems of_the_table;  // which reports them
    if (!read_value(*steps, path, {}, parts, of_the_table)) continue;
    auto whole = ConfigNode::list({});
    for (size_t i = 0; i < parts.size(); ++i) {
      auto& part = parts[i];
      if (registry.contains(part.name)) part = registry.resolve(part, path + "." + std::to_string(i), problems);
      auto step = write_value(part);
      for (const char* key : {"mean", "std"})  // of normalize
        if (const auto* numbers = step.find(key); numbers != nullptr && numbers->is_list() && numbers->items().empty())
          step.set(key, kLeftToData);
      whole.push_back(std::move(step));
    }
    *steps = std::move(whole);
  }
}

}  // namespace npu_train::detail
