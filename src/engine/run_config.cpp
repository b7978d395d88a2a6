#include "npu_train/engine/run_config.hpp"

#include <algorithm>

#include "engine/config_rules.hpp"
#include "engine/earlier_names.hpp"
#include "engine/hub_config.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/precision/emulation.hpp"

namespace npu_train {

const ConfigTable<OutputOptions>& OutputOptions::config_table() {
  using T = OutputOptions;
  static const auto table = ConfigTable<T>("output")
                                .field("dir", &T::dir, "folder of all runs; '': nothing is written")
                                .field("name", &T::name, "folder of this kind of run; '': the names of model and data")
                                .field("logger", &T::logger, "where the values of the run go, by name with its options")
                                .synonym("loggers", "logger")
                                .synonym("tensorboard", "logger");
  return table;
}

bool OutputOptions::logs_to(const std::string& which) const {
  return std::any_of(logger.begin(), logger.end(), [&](const PartConfig& part) { return part.name == which; });
}

const ConfigTable<AmpOptions>& AmpOptions::config_table() {
  using T = AmpOptions;
  static const auto table =
      ConfigTable<T>("amp")
          .field("fp32_modules", &T::fp32_modules,
                 "blocks of the model and classes of layers (LayerNorm, Softmax) that compute in fp32 under a low precision")
          .field("low_precision_modules", &T::low_precision_modules,
                 "exceptions to fp32_modules, and norm layers that the -true modes cast")
          .field("fp32_ops", &T::fp32_ops, "operators that compute in fp32 under a low precision");
  return table;
}

const ConfigTable<RunConfig>& RunConfig::config_table() {
  using T = RunConfig;
  static const auto table =
      ConfigTable<T>("run")
          .field("seed", &T::seed, "seed of all random numbers of the run", at_least(0))
          .field("deterministic", &T::deterministic,
                 "true: an operator without a deterministic implementation is an error; warn: it causes a warning",
                 one_of({"true", "warn", "false"}))
          .field("rng", &T::rng, "how dropout masks are drawn; portable: on the host, equal on every device",
                 one_of({"native", "portable"}))
          .field("device", &T::device, "auto (the first available of npu, cuda, cpu) | cpu | cuda[:i] | npu[:i] | sim_npu[:i]")
          .field("precision", &T::precision, "auto selects the fastest numerically safe precision of the device",
                 one_of(precision_modes(), {{"fp32", "32-true"},
                                            {"fp16", "16-mixed"},
                                            {"bf16", "bf16-mixed"},
                                            {"amp", "16-mixed"},
                                            {"32", "32-true"},
                                            {"16", "16-mixed"}}))
          .field("cpu_low_precision", &T::cpu_low_precision, "bf16 and fp16 on a CPU; auto: emulated if it has no fast kernels for them",
                 one_of(cpu_low_precision_names()))
          .field("sim_npu", &T::sim_npu, "the simulated NPU, for device sim_npu")
          .field("model", &T::model, "the network, by name, with its options")
          .field("data", &T::data, "the data set, by name, with its options")
          .field("task", &T::task, "loss and metrics, by name")
          .field("optimizer", &T::optimizer, "the optimizer, by name, with its options")
          .field("optimizers", &T::optimizers, "of a task with several optimizers: those that differ from `optimizer`, by the task's names")
          .field("lr_scheduler", &T::lr_scheduler, "the learning-rate schedule, by name; all lengths are in units of its interval")
          .field("trainer", &T::trainer, "the training loop")
          .field("grad_scaler", &T::grad_scaler, "loss scaling, for 16-mixed and 16-true")
          .field("amp", &T::amp, "modules and operators that keep fp32 under a low precision")
          .field("average", &T::average, "averages of the weights, used for validation")
          .field("checkpoint", &T::checkpoint, "which checkpoints are saved, and when")
          .field("early_stopping", &T::early_stopping, "stops the run if a metric no longer improves")
          .field("dist", &T::dist, "how several processes train together; no effect in one process")
          .field("callbacks", &T::callbacks, "callbacks of the program, by name with their options, in the order of their calls")
          .field("output", &T::output, "location of the run's files, and where its values go")
          .synonym("scheduler", "lr_scheduler")
          .synonym("seed_everything", "seed")
          .synonym("ema", "average")
          .synonym("model_ema", "average")
          .synonym("swa", "average");
  return table;
}

namespace {

enum class UnknownParts { Refused, Kept };

/// Removes an empty list or map that the first versions did not have, so that the text of their configurations is unchanged.
void leave_out_empty(ConfigNode& node, const char* key) {
  const auto* found = node.find(key);
  if (found != nullptr && (found->is_null() || (found->is_list() ? found->items().empty() : found->is_map() && found->members().empty())))
    node.erase(key);
}

/// Resolves `metrics` of the library's tasks; in other tasks the key may have another meaning.
template <class Resolve>
void resolve_metrics(PartConfig& task, const Parts& parts, const Resolve& resolve) {
  auto* node = task.options.find("metrics");
  std::vector<PartConfig> metrics;
  ConfigProblems of_the_table;  // ignored, because the table reports these problems
  if (node == nullptr || !detail::is_own_part(parts.tasks, builtin_parts().tasks, task.name) ||
      !detail::read_value(*node, "task.metrics", {}, metrics, of_the_table))
    return;
  auto whole = ConfigNode::list({});
  for (size_t i = 0; i < metrics.size(); ++i) {
    resolve(metrics[i], parts.metrics, "task.metrics." + std::to_string(i));
    whole.push_back(detail::write_value(metrics[i]));
  }
  *node = std::move(whole);
}

/// Resolves the collate, if one is named.
template <class Resolve>
void resolve_collate(PartConfig& data, const Parts& parts, const Resolve& resolve) {
  leave_out_empty(data.options, "collate");
  auto* node = data.options.find("collate");
  PartConfig collate;
  ConfigProblems of_the_table;  // ignored, because the table reports these problems
  if (node == nullptr || !detail::read_value(*node, "data.collate", {}, collate, of_the_table)) return;
  resolve(collate, parts.collates, "data.collate");
  *node = detail::write_value(collate);
}

/// Resolves the parts that a registry knows: checks their options and fills in defaults. A part without a name is unchanged.
void resolve_parts(RunConfig& config, const Parts& parts, ConfigProblems& problems, UnknownParts unknown = UnknownParts::Refused) {
  const auto resolve = [&](PartConfig& part, const auto& registry, const std::string& path) {
    if (!part.name.empty() && (unknown == UnknownParts::Refused || registry.contains(part.name)))
      part = registry.resolve(part, path, problems);
  };
  resolve(config.model, parts.models, "model");
  resolve(config.data, parts.datasets, "data");
  resolve_collate(config.data, parts, resolve);
  resolve(config.task, parts.tasks, "task");
  leave_out_empty(config.task.options, "metrics");
  resolve_metrics(config.task, parts, resolve);
  resolve(config.optimizer, parts.optimizers, "optimizer");
  leave_out_empty(config.optimizer.options, "groups");
  for (auto& [name, optimizer] : config.optimizers) {
    resolve(optimizer, parts.optimizers, "optimizers." + name);
    leave_out_empty(optimizer.options, "groups");
  }
  resolve(config.lr_scheduler, parts.schedules, "lr_scheduler");
  for (size_t i = 0; i < config.callbacks.size(); ++i) resolve(config.callbacks[i], parts.callbacks, "callbacks." + std::to_string(i));
  auto& loggers = config.output.logger;
  for (size_t i = 0; i < loggers.size(); ++i) resolve(loggers[i], parts.loggers, "output.logger." + std::to_string(i));
  config.sections = parts.observers.resolve(config.sections, problems);
}

void put_sections(ConfigNode& node, const ConfigSections& sections) {
  for (const auto& [name, section] : sections) {
    ConfigNode::Member member;
    member.key = name;
    member.value = section;
    node.put(std::move(member));
  }
}

/// Returns the complete `config` as a node, with the sections last.
ConfigNode whole_node(const RunConfig& config) {
  auto node = to_node(config);
  leave_out_empty(node, "callbacks");
  leave_out_empty(node, "optimizers");
  put_sections(node, config.sections);
  return node;
}

/// Reports and removes keys that neither the table nor an observer has. All names are known only here.
void report_unknown(ConfigNode& node, const Parts& parts, ConfigProblems& problems) {
  if (!node.is_map()) return;
  std::vector<std::string> names;
  for (const auto& field : config_fields(parts)) names.push_back(field.name);
  const auto& synonyms = RunConfig::config_table().synonyms();
  const auto members = node.members();
  for (const auto& member : members) {
    const auto& key = member.key;
    const bool known = std::find(names.begin(), names.end(), key) != names.end() ||
                       std::any_of(synonyms.begin(), synonyms.end(), [&](const auto& synonym) { return synonym.first == key; });
    if (known) continue;
    const auto near = nearest_name(key, names);
    problems.add(
        member.key_mark, key,
        "no such key; " + (near.empty() ? "allowed: " : "did you mean '" + near + "'? Allowed: ") + join(nearest_first(key, names)));
    node.erase(key);
  }
}

/// Fills in the keys that `dist.preset` implies and the configuration does not set.
void apply_preset(ConfigNode& node) {
  auto* dist = node.find("dist");
  const auto* preset = dist != nullptr ? dist->find("preset") : nullptr;
  if (preset == nullptr || !preset->is_scalar() || preset->scalar() != "communication") return;  // the table reports other values
  auto values = DistOptions::preset_values(preset->scalar());
  values.move_to(preset->mark());
  for (const auto& member : values.members())
    if (dist->find(member.key) == nullptr) dist->put(member);
}

/// Enables each section that is present and has no key `enabled`.
void enable_given(ConfigNode& node) {
  for (const auto& field : RunConfig::config_table().describe()) {
    const bool off_by_default = std::any_of(field.children.begin(), field.children.end(),
                                            [](const FieldInfo& f) { return f.name == "enabled" && f.default_text == "false"; });
    auto* section = off_by_default ? node.find(field.name) : nullptr;
    if (section == nullptr || !(section->is_map() || section->is_null()) || section->find("enabled") != nullptr) continue;
    if (section->is_null()) {
      const auto mark = section->mark();
      *section = ConfigNode::map();
      section->set_mark(mark);
    }
    section->set("enabled", ConfigNode(true));
  }
}

RunConfig bind_sections(ConfigNode node, const Parts& parts, ConfigProblems& problems) {
  RunConfig config;
  parts.observers.take_sections(node, config.sections, problems);
  report_unknown(node, parts, problems);
  apply_preset(node);
  enable_given(node);
  bind_into(config, node, "", problems);
  return config;
}

/// Reports and removes keys that are written outside their section; the message has the full name.
void report_misplaced(ConfigNode& node, const Parts& parts, ConfigProblems& problems) {
  if (!node.is_map()) return;
  const auto members = node.members();
  for (const auto& member : members) {
    const auto full = full_key(member.key, parts);
    if (full.empty()) continue;
    problems.add(member.key_mark, member.key, "no such key; did you mean " + full + "?");
    node.erase(member.key);
  }
}

/// Returns a function that finds where a key of `node` was written: the position of its value, or that of its section.
detail::MarkOf marks_in(const ConfigNode& node) {
  return [&node](const std::string& path) {
    const ConfigNode* at = &node;
    for (size_t begin = 0; begin < path.size();) {
      const auto end = std::min(path.find('.', begin), path.size());
      const auto* child = at->find(path.substr(begin, end - begin));
      if (child == nullptr) break;
      at = child;
      begin = end + 1;
    }
    return at->mark();
  };
}

/// Runs all checks that need neither files nor devices; `config` has passed its table.
void check_parts(const RunConfig& config, const Parts& parts, const detail::MarkOf& mark_of, ConfigProblems& problems) {
  auto full = config;
  resolve_parts(full, parts, problems);
  auto data = config.data.options;  // unresolved, because only the nodes as written have positions
  detail::resolve_transforms(data, parts.transforms, problems);
  detail::check_rules(config, parts, mark_of, problems);
}

}  // namespace

std::vector<std::string> disabled_keys(const RunConfig& config) {
  std::vector<std::string> out;
  const auto given = to_node(config), defaults = to_node(RunConfig{});
  for (const auto& section : given.members()) {
    const auto* enabled = section.value.find("enabled");
    if (enabled == nullptr || !enabled->is_scalar() || enabled->scalar() != "false") continue;
    for (const auto& member : section.value.members())
      if (member.key != "enabled" && !(member.value == *defaults.find(section.key)->find(member.key)))
        out.push_back(section.key + "." + member.key);
  }
  return out;
}

std::optional<ConfigNode> comparable_config(const ConfigNode& node, std::string& why, const Parts& parts) {
  ConfigProblems problems;
  auto renamed = node;
  detail::rename_earlier(renamed, problems);
  auto config = bind_sections(std::move(renamed), parts, problems);
  const auto written_model = config.model;
  if (problems.empty()) resolve_parts(config, parts, problems, UnknownParts::Kept);
  if (problems.empty()) detail::resolve_transforms(config.data.options, parts.transforms, problems);
  if (!problems.empty()) {
    const auto& first = problems.all().front();
    why = "is not a configuration of train_app (" + (first.path.empty() ? "" : first.path + ": ") + first.message + ")";
    return std::nullopt;
  }
  if (config.model.name.empty() || config.data.name.empty()) {
    why = std::string("is not a configuration of train_app (it names no ") + (config.model.name.empty() ? "model)" : "data)");
    return std::nullopt;
  }
  for (const char* key : {"num_classes", "image_size"})
    if (written_model.options.find(key) == nullptr && config.model.options.find(key) != nullptr) config.model.options.set(key, kLeftToData);
  return whole_node(config);
}

std::vector<FieldInfo> config_fields(const Parts& parts) {
  auto out = RunConfig::config_table().describe();
  const auto sections = parts.observers.describe();
  out.insert(out.end(), sections.begin(), sections.end());
  return out;
}

std::string full_key(const std::string& key, const Parts& parts) {
  const auto is = [&](const FieldInfo& f) { return f.name == key; };
  const auto fields = config_fields(parts);
  if (std::any_of(fields.begin(), fields.end(), is)) return "";
  for (const auto& [other, name] : RunConfig::config_table().synonyms())
    if (other == key) return "";
  // searches the most common sections first
  for (const auto& [other, name] : TrainerOptions::config_table().synonyms())
    if (other == key) return "trainer." + name;
  if (const auto keys = keys_called(key); keys.size() == 1) return keys.front();
  const auto in_registry = [&](const auto& registry) {
    const auto names = registry.names();
    return std::any_of(names.begin(), names.end(), [&](const auto& name) {
      const auto all = registry.describe(name);
      return std::any_of(all.begin(), all.end(), is);
    });
  };
  const auto section = std::find_if(fields.begin(), fields.end(), [&](const FieldInfo& f) {
    return f.name == "trainer" && std::any_of(f.children.begin(), f.children.end(), is);
  });
  if (section != fields.end()) return "trainer." + key;
  if (in_registry(parts.optimizers)) return "optimizer." + key;
  if (in_registry(parts.models)) return "model." + key;
  if (in_registry(parts.datasets)) return "data." + key;
  if (in_registry(parts.schedules)) return "lr_scheduler." + key;
  if (in_registry(parts.tasks)) return "task." + key;
  for (const auto& f : fields)
    if (std::any_of(f.children.begin(), f.children.end(), is)) return f.name + "." + key;
  return "";
}

RunConfig bind_config(const ConfigNode& given, const Parts& parts) {
  ConfigProblems problems;
  auto node = given;
  detail::rename_earlier(node, problems);
  detail::fill_model_from_weights(node, parts);
  report_misplaced(node, parts, problems);
  auto config = bind_sections(node, parts, problems);
  check_parts(config, parts, marks_in(node), problems);
  problems.throw_if_any();
  return config;  // options stay as written: data and weights may determine those that are not set
}

void check_config(const RunConfig& config, const Parts& parts) {
  ConfigProblems problems;
  RunConfig bound;
  bind_into(bound, config, "", problems);
  auto sections = ConfigNode::map();
  put_sections(sections, config.sections);
  parts.observers.take_sections(sections, bound.sections, problems);
  for (const auto& unknown : sections.members()) bound.sections[unknown.key] = unknown.value;  // the parts' check reports these sections
  if (config.data.name.empty()) {                                                              // the data are given in code
    bound.data = {};
    detail::PlainDataOptions plain;
    bind_into(plain, config.data.options, "data", problems);
  }
  check_parts(
      bound, parts, [](const std::string&) { return Mark{}; }, problems);
  problems.throw_if_any();
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
  for (const char* key : {"num_classes", "image_size"})  // determined by the data if not set
    if (config.model.options.find(key) == nullptr) full.model.options.erase(key);
  return whole_node(full);
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
