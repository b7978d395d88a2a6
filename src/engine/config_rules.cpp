#include "engine/config_rules.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/data/transform.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/nn/checkpoint_plan.hpp"
#include "npu_train/precision/fp32_ops.hpp"
#include "npu_train/precision/loss_scale.hpp"
#include "npu_train/precision/policy.hpp"

namespace npu_train::detail {
namespace {

/// True for a path that may lead out of the folder to which it is relative.
bool leads_out(const std::filesystem::path& path) { return path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end(); }

void check_data(const RunConfig& config, const std::function<void(const char*, const std::function<void()>&)>& rule) {
  if (const auto workers = option_text(config.data.options, "num_workers"); !workers.empty())
    rule("data.num_workers", [&] { parse_num_workers(workers); });
}

/// Makes a built-in optimizer without parameters, to find contradictions between its keys. Returns its lr; 0 for an optimizer of the
/// program, which may need parameters.
double check_optimizer(const PartConfig& optimizer, const Parts& parts) {
  OptimizerRegistry own{"optimizer"};
  add_builtin_optimizers(own);
  if (!is_own_part(parts.optimizers, own, optimizer.name)) return 0;
  return parts.optimizers.make(optimizer, "optimizer", {})->lr();
}

/// Makes the schedule, to find contradictions between its keys. This is pure arithmetic; the length of the run may be unknown without data.
void check_schedule(const RunConfig& config, const Parts& parts, double lr) {
  const auto& name = config.lr_scheduler.name;
  if (name.empty() || !parts.schedules.contains(name)) return;
  const auto& limits = config.trainer;
  ScheduleContext context;
  context.total_epochs = limits.max_epochs;
  context.total_steps = limits.max_steps >= 0 ? limits.max_steps : std::min<int64_t>(limits.max_epochs, 1);
  if (name != "one_cycle") context.base_lr = lr;  // for one_cycle, base_lr affects only a warning, which the run prints
  const auto schedule = parts.schedules.make(config.lr_scheduler, "lr_scheduler", context);
  const auto& average = config.average;
  check(schedule->plateau() == nullptr || !average.enabled || average.kind != "swa" || average.lr == 0, ErrorKind::Usage, "lr_scheduler",
        name, " lowers the rate by a factor of its own, so that it would not become average.lr, ", average.lr,
        "; allowed with average.lr=0; hint: another schedule");
}

/// Reports keys of `average` that were changed and belong to another kind than the configured one.
void check_average(const AverageOptions& average, const std::function<void(const std::string& key, const std::string& message)>& refuse) {
  static const std::map<std::string, std::vector<std::string>> kKeysOf = {
      {"ema", {"decay", "warmup"}}, {"swa", {"start", "every", "lr", "anneal_epochs", "anneal"}}, {"checkpoints", {"last"}}};
  const auto own = kKeysOf.find(average.kind);
  if (!average.enabled || own == kKeysOf.end()) return;  // the table reports other kinds
  const auto given = to_node(average), defaults = to_node(AverageOptions{});
  const auto changed = [&](const std::string& key) { return !(*given.find(key) == *defaults.find(key)); };
  for (const auto& [kind, keys] : kKeysOf)
    for (const auto& key : keys)
      if (kind != own->first && changed(key))
        refuse(key, str_cat("belongs to average.kind=", kind, ", and the kind is ", own->first, "; allowed with it: ", join(own->second),
                            "; hint: average={kind: ", own->first, "} replaces the section"));
  for (const char* key : {"anneal_epochs", "anneal"})
    if (own->first == "swa" && average.lr == 0 && changed(key))
      refuse(key, "says how the rate moves to average.lr, which is 0: the rate follows lr_scheduler; hint: set average.lr");
}

}  // namespace

std::string option_text(const ConfigNode& options, const std::string& key) {
  const auto* value = options.find(key);
  return value != nullptr && value->is_scalar() ? value->scalar() : "";
}

const ConfigTable<PlainDataOptions>& PlainDataOptions::config_table() {
  static const auto table = data_fields(ConfigTable<PlainDataOptions>("data"));
  return table;
}

void check_rules(const RunConfig& config, const Parts& parts, const MarkOf& mark_of, ConfigProblems& problems) {
  const auto rule = [&](const char* path, const std::function<void()>& fn) {
    try {
      fn();
    } catch (const Error& e) {
      problems.add(mark_of(path), path, e.message());
    }
  };
  const auto refuse = [&](const char* path, bool bad, const auto&... message) {
    if (bad) problems.add(mark_of(path), path, str_cat(message...));
  };
  rule("device", [&] {
    register_devices(parts);
    if (config.device != "auto") Device::parse(config.device);
  });
  rule("trainer.devices", [&] {
    const auto processes = parse_devices(config.trainer.devices);
    check(processes <= 1 || config.trainer.strategy != "single", ErrorKind::Usage, "trainer.devices", processes,
          " processes, and trainer.strategy is single; allowed with it: 1 or auto");
  });
  rule("dist.compression", [&] { config.dist.compressed(); });
  rule("dist.group_size", [&] { config.dist.check_groups(); });
  rule("trainer.val_check_interval", [&] { parse_val_check_interval(config.trainer.val_check_interval); });
  rule("trainer.gradient_checkpointing", [&] { CheckpointPlan::parse(config.trainer.gradient_checkpointing); });
  rule("grad_scaler", [&] { LossScale(config.grad_scaler.loss_scale()); });
  rule("grad_scaler.enabled", [&] { check_loss_scale_use(config.grad_scaler.enabled, config.precision); });
  rule("amp", [&] { amp_modules(config.amp); });
  rule("amp.fp32_ops", [&] { check_fp32_ops(config.amp.fp32_ops); });
  refuse("trainer.profiler", config.trainer.profiler != "none" && !parts.observers.contains("profiler"), "this program has no profiler",
         "; hint: the profiler is part of npu_train::tools; link that library and call add_tools(parts)");
  refuse(
      "output.name", leads_out(config.output.name), "'", config.output.name,
      "' leads out of output.dir; allowed: a name, or names with '/' between them, without '..'; hint: output.dir chooses another folder");
  for (size_t i = 0; i < config.output.logger.size(); ++i) {
    const auto& name = config.output.logger[i].name;
    const auto first =
        std::find_if(config.output.logger.begin(), config.output.logger.end(), [&](const auto& l) { return l.name == name; });
    refuse("output.logger", &*first != &config.output.logger[i], "'", name, "' is there twice; allowed: each logger once");
  }
  check_average(config.average, [&](const std::string& key, const std::string& message) {
    problems.add(mark_of("average." + key), "average." + key, message);
  });
  refuse("average.kind", config.average.enabled && config.average.kind == "checkpoints" && !config.checkpoint.enabled,
         "checkpoints are averaged, and checkpoint.enabled is false; allowed with it: ema, swa");
  rule("sim_npu.hbm", [&] { config.sim_npu.hbm_bytes(); });
  check_data(config, rule);
  // returns whether no problem in this section has been reported so far
  const auto sound = [&](const std::string& section) {
    return std::none_of(problems.all().begin(), problems.all().end(), [&](const auto& p) { return p.path.starts_with(section); });
  };
  // reports an error at the key with which its message begins
  const auto part_rule = [&](const char* path, const PartConfig& part, const std::function<void()>& fn) {
    try {
      fn();
    } catch (const Error& e) {
      const auto message = e.message();
      const auto key = message.substr(0, message.find_first_of(" :"));
      const auto place = std::string(path) + (part.options.find(key) != nullptr ? "." + key : "");
      problems.add(mark_of(place), place, message);
    }
  };
  if (const auto* node = config.data.options.find("collate"); node != nullptr && sound("data.collate")) {
    PartConfig collate;
    ConfigProblems of_the_table;
    CollateRegistry own{"collate"};
    add_builtin_collates(own);
    if (read_value(*node, "data.collate", {}, collate, of_the_table) && is_own_part(parts.collates, own, collate.name))
      rule("data.collate", [&] { parts.collates.make(collate, "data.collate"); });
  }
  double lr = 0;
  if (sound("optimizer")) part_rule("optimizer", config.optimizer, [&] { lr = check_optimizer(config.optimizer, parts); });
  for (const auto& [name, optimizer] : config.optimizers) {
    const auto path = "optimizers." + name;
    if (optimizer.name.empty())
      problems.add(mark_of(path), path, "no optimizer is named; allowed: " + join(parts.optimizers.names()));
    else if (sound(path))
      part_rule(path.c_str(), optimizer, [&, &part = optimizer] { check_optimizer(part, parts); });
  }
  if (sound("lr_scheduler") && sound("trainer.max_epochs") && sound("trainer.max_steps"))
    part_rule("lr_scheduler", config.lr_scheduler, [&] { check_schedule(config, parts, lr); });
}

void resolve_transforms(ConfigNode& data, const TransformRegistry& transforms, ConfigProblems& problems) {
  for (const char* list : {"train_transforms", "val_transforms"}) {
    auto* steps = data.find(list);
    if (steps == nullptr) continue;
    const auto path = std::string("data.") + list;
    std::vector<PartConfig> parts;
    ConfigProblems of_the_table;  // ignored, because the table reports these problems
    if (!read_value(*steps, path, {}, parts, of_the_table)) continue;
    auto whole = ConfigNode::list({});
    for (size_t i = 0; i < parts.size(); ++i) {
      auto& part = parts[i];
      if (transforms.contains(part.name)) part = transforms.resolve(part, path + "." + std::to_string(i), problems);
      auto step = write_value(part);
      for (const char* key : {"mean", "std"})  // the options of normalize
        if (const auto* numbers = step.find(key); numbers != nullptr && numbers->is_list() && numbers->items().empty())
          step.set(key, kLeftToData);
      whole.push_back(std::move(step));
    }
    *steps = std::move(whole);
  }
}

}  // namespace npu_train::detail
