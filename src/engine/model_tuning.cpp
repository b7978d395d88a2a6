#include "npu_train/engine/model_tuning.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "engine/unfreezing.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/seed.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/nn/module_state.hpp"
#include "npu_train/nn/own_generator.hpp"

namespace npu_train {
namespace {

constexpr const char *kFreeze = "freeze", *kUnfreeze = "unfreeze", *kLoraKey = "lora", *kWeightsKey = "weights_key",
                     *kUnusedClasses = "allow_unused_classes";

struct TuningKeys {
  std::vector<std::string> freeze{};
  std::vector<detail::UnfreezeStage> unfreeze{};
  LoraOptions lora{};
  std::string weights_key = "auto";
  bool allow_unused_classes = false;
  static const ConfigTable<TuningKeys>& config_table() {
    static const auto table =
        ConfigTable<TuningKeys>("model")
            .field("freeze", &TuningKeys::freeze, "parameters that are not trained: parts of their names, * matches any text")
            .field("unfreeze", &TuningKeys::unfreeze, "frozen parameters that are trained after a number of epochs")
            .field("lora", &TuningKeys::lora, "low-rank adapters, which alone are trained")
            .field("weights_key", &TuningKeys::weights_key,
                   "of a file of weights that has averages (state_dict_ema, model_ema, or the averages of a checkpoint) next to other "
                   "weights; "
                   "auto: the averages if there are any",
                   one_of({"auto", "ema", "model"}))
            .field("allow_unused_classes", &TuningKeys::allow_unused_classes,
                   "true: num_classes may be larger than the number of classes of the data");
    return table;
  }
};

const std::vector<std::string>& tuning_keys() {
  static const std::vector<std::string> keys = {kFreeze, kUnfreeze, kLoraKey, kWeightsKey, kUnusedClasses};
  return keys;
}

// Returns the keys of `part` that are not in `without`.
ConfigNode tuning_of(const PartConfig& part, const PartConfig& without) {
  auto out = ConfigNode::map();
  for (const auto& member : part.options.members())
    if (without.options.find(member.key) == nullptr) out.put(member);
  return out;
}

// Reads the tuning keys. Adds errors to `problems`; without errors, the result is valid. `stages` receives the stages of model.unfreeze.
ModelTuning read_tuning(const ConfigNode& keys, const std::string& path, ConfigProblems& problems,
                        std::vector<detail::UnfreezeStage>* stages = nullptr) {
  TuningKeys read;
  ConfigProblems own;
  bind_into(read, keys, path, own);
  const auto* lora = keys.find(kLoraKey);
  const auto add = [&](const char* key, const std::string& message) { own.add(keys.find(key)->mark(), path + "." + key, message); };
  if (lora != nullptr && own.empty()) try {
      check_lora_options(read.lora);
    } catch (const Error& e) {
      add(kLoraKey, e.message());
    }
  if (lora != nullptr && !read.freeze.empty())
    add(kFreeze, "with lora all weights of the model are frozen; omit one of the two; hint: lora.also_train trains more than the adapters");
  if (!read.unfreeze.empty() && read.freeze.empty()) add(kUnfreeze, "no parameter is frozen; hint: model.freeze");
  if (stages != nullptr) *stages = std::move(read.unfreeze);
  for (const auto& problem : own.all()) problems.add(problem.mark, problem.path, problem.message);
  return {.freeze = std::move(read.freeze),
          .lora = lora != nullptr ? std::optional(std::move(read.lora)) : std::nullopt,
          .weights = own.empty() ? weight_set_of(read.weights_key) : WeightSet::Auto,
          .allow_unused_classes = read.allow_unused_classes};
}

// Reports unknown keys that resemble a tuning key, because the model's own table would not suggest a tuning key.
void report_near_misses(const ModelParts& models, PartConfig& part, const std::string& path, ConfigProblems& problems) {
  if (!models.contains(part.name)) return;
  std::vector<std::string> names;
  for (const auto& field : models.describe(part.name)) names.push_back(field.name);
  const auto members = part.options.members();
  for (const auto& member : members) {
    if (std::find(names.begin(), names.end(), member.key) != names.end()) continue;
    const auto near = nearest_name(member.key, names);
    if (std::find(tuning_keys().begin(), tuning_keys().end(), near) == tuning_keys().end()) continue;
    problems.add(member.key_mark, path + "." + member.key, "no such key; did you mean '" + near + "'?");
    part.options.erase(member.key);
  }
}

}  // namespace

bool ModelParts::is_tuning_key(const std::string& model, const std::string& key) const {
  if (std::find(tuning_keys().begin(), tuning_keys().end(), key) == tuning_keys().end()) return false;
  const auto own = ModelRegistry::describe(model);
  return std::none_of(own.begin(), own.end(), [&](const FieldInfo& f) { return f.name == key; });
}

std::vector<FieldInfo> ModelParts::describe(const std::string& name) const {
  auto out = ModelRegistry::describe(name);
  for (const auto& field : TuningKeys::config_table().describe())
    if (is_tuning_key(name, field.name)) out.push_back(field);
  return out;
}

PartConfig ModelParts::without_tuning(const PartConfig& part) const {
  if (!contains(part.name)) return part;
  auto out = part;
  for (const auto& key : tuning_keys())
    if (is_tuning_key(part.name, key)) out.options.erase(key);
  return out;
}

Model ModelParts::make(const PartConfig& part, const std::string& path) const { return ModelRegistry::make(without_tuning(part), path); }

PartConfig ModelParts::resolve(const PartConfig& part, const std::string& path, ConfigProblems& problems) const {
  auto own = without_tuning(part);
  report_near_misses(*this, own, path, problems);
  auto out = ModelRegistry::resolve(own, path, problems);
  std::vector<detail::UnfreezeStage> stages;
  const auto tuning = read_tuning(tuning_of(part, own), path, problems, &stages);
  if (!tuning.freeze.empty()) out.options.set(kFreeze, detail::write_value(tuning.freeze));
  if (!stages.empty()) out.options.set(kUnfreeze, detail::write_sections(stages));
  if (tuning.lora) out.options.set(kLoraKey, to_node(*tuning.lora));
  for (const char* key : {kWeightsKey, kUnusedClasses})
    if (const auto* given = part.options.find(key); given != nullptr && own.options.find(key) == nullptr) out.options.set(key, *given);
  return out;
}

ModelTuning ModelParts::tuning(const PartConfig& part, const std::string& path) const {
  ConfigProblems problems;
  auto out = read_tuning(tuning_of(part, without_tuning(part)), path, problems);
  problems.throw_if_any();
  return out;
}

std::vector<detail::UnfreezeStage> detail::unfreeze_stages(const PartConfig& part, const Parts& parts) {
  ConfigProblems none;
  std::vector<UnfreezeStage> stages;
  if (parts.models.contains(part.name)) read_tuning(tuning_of(part, parts.models.without_tuning(part)), "model", none, &stages);
  return stages;
}

PartConfig tune(Model& model, const PartConfig& part, const Parts& parts, uint64_t seed) {
  const auto tuning = parts.models.tuning(part, "model");
  auto out = part;
  if (!tuning.freeze.empty()) {
    check(model.module != nullptr, ErrorKind::Usage, "model.freeze", "the model '", model.name, "' has no module");
    const auto frozen = freeze_parameters(*model.module, tuning.freeze);
    log_info("freeze: ", frozen.size(), " parameters are not trained");
  }
  if (tuning.lora) {
    const OwnGenerator own(at::detail::createCPUGenerator(derive_seed(seed, kLoraKey)));
    const auto report = apply_lora(model, *tuning.lora);
    log_info(report.str());
    out.options.set(kLoraKey, to_node(report.options));
  }
  return out;
}

void merge_adapter_of(Model& model, const PartConfig& part, const Parts& parts) {
  const auto lora = parts.models.tuning(part, "model").lora;
  if (!lora || lora->from.empty()) return;
  apply_lora(model, *lora);
  merge_lora(model);
}

}  // namespace npu_train
