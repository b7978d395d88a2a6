#include "npu_train/engine/run_config.hpp"

#include <algorithm>

#include "npu_train/align/config_diff.hpp"
#include "npu_train/data/transform.hpp"
#include "npu_train/precision/emulation.hpp"

namespace npu_train {

const ConfigTable<OutputOptions>& OutputOptions::config_table() {
  using T = OutputOptions;
  static const auto table = ConfigTable<T>("output")
                                .field("dir", &T::dir, "folder of all runs; '' writes nothing")
                                .field("name", &T::name, "folder of this kind of run; '' takes the names of model and data")
                                .field("tensorboard", &T::tensorboard, "write TensorBoard events beside metrics.csv and history.json");
  return table;
}

const ConfigTable<AmpOptions>& AmpOptions::config_table() {
  using T = AmpOptions;
  static const auto table =
      ConfigTable<T>("amp")
          .field("fp32_modules", &T::fp32_modules, "blocks of the model that compute in fp32 under a low precision")
          .field("low_precision_modules", &T::low_precision_modules, "exceptions from fp32_modules, and norm layers that -true is to cast")
          .field("fp32_ops", &T::fp32_ops, "operators that compute in fp32 under a low precision");
  return table;
}

const ConfigTable<RunConfig>& RunConfig::config_table() {
  using T = RunConfig;
  static const auto table =
      ConfigTable<T>("run")
          .field("seed", &T::seed, "every random number of the run follows from it", at_least(0))
          .field("deterministic", &T::deterministic, "true: an operator without a deterministic form is an error; warn: it warns",
                 one_of({"true", "warn", "false"}))
          .field("rng", &T::rng, "dropout masks; portable: drawn on the host, equal on every device", one_of({"native", "portable"}))
          .field("device", &T::device, "auto (npu, cuda, cpu) | cpu | cuda[:i] | npu[:i] | sim_npu[:i]")
          .field("precision", &T::precision, "auto takes the fastest sound one of the device", one_of(precision_modes()))
          .field("cpu_low_precision", &T::cpu_low_precision, "bf16 and fp16 on a CPU; auto: emulated where it has no units for them",
                 one_of(cpu_low_precision_names()))
          .field("sim_npu", &T::sim_npu, "the simulated NPU, for device sim_npu")
          .field("model", &T::model, "the network, by name, with its options")
          .field("data", &T::data, "the data set, by name, with its options")
          .field("task", &T::task, "loss and metrics, by name")
          .field("optimizer", &T::optimizer, "by name, with its options")
          .field("lr_scheduler", &T::lr_scheduler, "by name; all lengths in units of its interval")
          .field("trainer", &T::trainer, "the loop")
          .field("grad_scaler", &T::grad_scaler, "loss scaling, for 16-mixed and 16-true")
          .field("amp", &T::amp, "which modules and operators keep fp32 under a low precision")
          .field("ema", &T::ema, "moving average of the weights, used for validation")
          .field("checkpoint", &T::checkpoint, "what is saved, and when")
          .field("early_stopping", &T::early_stopping, "stop when nothing improves")
          .field("output", &T::output, "where a run leaves its files")
          .field("dump", &T::dump, "what the run computes, layer by layer, for npu_tool compare; on where the section is there")
          .synonym("scheduler", "lr_scheduler")
          .synonym("seed_everything", "seed")
          .synonym("model_ema", "ema");
  return table;
}

namespace {

enum class UnknownParts { Refused, Kept };

/// The parts whose names a registry knows, each with its options checked and filled in. An unnamed part is left alone.
void resolve_parts(RunConfig& config, const Parts& parts, ConfigProblems& problems, UnknownParts unknown = UnknownParts::Refused) {
  const auto resolve = [&](PartConfig& part, const auto& registry, const char* path) {
    if (!part.name.empty() && (unknown == UnknownParts::Refused || registry.contains(part.name)))
      part = registry.resolve(part, path, problems);
  };
  resolve(config.model, parts.models, "model");
  resolve(config.data, parts.datasets, "data");
  resolve(config.task, parts.tasks, "task");
  resolve(config.optimizer, parts.optimizers, "optimizer");
  resolve(config.lr_scheduler, parts.schedules, "lr_scheduler");
}

}  // namespace

namespace {

RunConfig bind_sections(const ConfigNode& node, ConfigProblems& problems) {
  RunConfig config;
  bind_into(config, node, "", problems);
  if (const auto* dump = node.find("dump"); dump != nullptr && dump->find("enabled") == nullptr) config.dump.enabled = true;
  return config;
}

/// The options of each transform filled in.
void resolve_transforms(ConfigNode& data, ConfigProblems& problems) {
  const auto registry = builtin_transforms();
  for (const char* list : {"train_transforms", "val_transforms"}) {
    auto* steps = data.find(list);
    if (steps == nullptr) continue;
    std::vector<PartConfig> parts;
    if (!detail::read_value(*steps, list, {}, parts, problems)) continue;
    auto whole = ConfigNode::list({});
    for (auto& part : parts) {
      if (registry.contains(part.name)) part = registry.resolve(part, list, problems);
      auto step = detail::write_value(part);
      for (const char* key : {"mean", "std"})  // of normalize
        if (const auto* numbers = step.find(key); numbers != nullptr && numbers->is_list() && numbers->items().empty())
          step.set(key, kLeftToData);
      whole.push_back(std::move(step));
    }
    *steps = std::move(whole);
  }
}

}  // namespace

std::optional<ConfigNode> comparable_config(const ConfigNode& node, std::string& why, const Parts& parts) {
  ConfigProblems problems;
  auto config = bind_sections(node, problems);
  const auto written_model = config.model;
  if (problems.empty()) resolve_parts(config, parts, problems, UnknownParts::Kept);
  if (problems.empty()) resolve_transforms(config.data.options, problems);
  if (!problems.empty()) {
    const auto& first = problems.all().front();
    why = "is no configuration of train_app (" + (first.path.empty() ? "" : first.path + ": ") + first.message + ")";
    return std::nullopt;
  }
  if (config.model.name.empty() || config.data.name.empty()) {
    why = std::string("is no configuration of train_app (it names no ") + (config.model.name.empty() ? "model)" : "data)");
    return std::nullopt;
  }
  for (const char* key : {"num_classes", "image_size"})
    if (written_model.options.find(key) == nullptr && config.model.options.find(key) != nullptr) config.model.options.set(key, kLeftToData);
  return to_node(config);
}

RunConfig bind_config(const ConfigNode& node, const Parts& parts) {
  ConfigProblems problems;
  auto config = bind_sections(node, problems);
  auto checked = config;
  resolve_parts(checked, parts, problems);
  problems.throw_if_any();
  return config;  // options as written: what is left open may still be decided by other parts
}

RunConfig load_config(const std::string& path, const std::vector<std::string>& overrides, const Parts& parts) {
  auto node = load_yaml(path);
  for (const auto& text : overrides) apply_override(node, text);
  return bind_config(node, parts);
}

ConfigNode resolved(const RunConfig& config, const Parts& parts) {
  auto full = config;
  ConfigProblems problems;
  resolve_parts(full, parts, problems);
  problems.throw_if_any();
  for (const char* key : {"num_classes", "image_size"})  // left open: the data decides
    if (config.model.options.find(key) == nullptr) full.model.options.erase(key);
  return to_node(full);
}

PartConfig with_data_defaults(PartConfig model, const DatasetInfo& info, int64_t image_size, const Parts& parts) {
  const auto fields = parts.models.describe(model.name);
  const auto offer = [&](const char* key, int64_t value) {
    const bool known = std::any_of(fields.begin(), fields.end(), [&](const FieldInfo& f) { return f.name == key; });
    if (known && value > 0 && model.options.find(key) == nullptr) model.options.set(key, ConfigNode(value));
  };
  offer("num_classes", info.num_classes);
  offer("image_size", image_size > 0 ? image_size : (info.shape.size() == 3 ? info.shape[1] : 0));
  return model;
}

}  // namespace npu_train
