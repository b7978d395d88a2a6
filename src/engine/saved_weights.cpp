#include "engine/saved_weights.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

SavedWeights saved_weights(const std::string& checkpoint, WeightSet set) {
  auto state = load_checkpoint(checkpoint, {"model", "ema"});
  check(state.count("model") != 0, ErrorKind::Checkpoint, "weights", checkpoint, ": the checkpoint contains no model");
  const auto averages = state.find("ema");
  SavedWeights out{.has_averages = averages != state.end() && !averages->second.tensors.empty()};
  check(set != WeightSet::Ema || out.has_averages, ErrorKind::Checkpoint, "weights", checkpoint,
        ": has no averages: the run had no section average, or none had begun (average.start) when it was saved; hint: --weights plain");
  out.averages = out.has_averages && set != WeightSet::Plain;
  auto& model = state["model"].tensors;
  if (out.averages)
    for (const auto& [key, tensor] : averages->second.tensors) {
      const auto name = key.substr(key.find('/') + 1);
      if (model.count(name) != 0) model[name] = tensor;
    }
  out.tensors = tensors_by_every_name(state["model"]);
  return out;
}

RunConfig config_without_training(const std::string& checkpoint, const std::vector<std::string>& overrides, const Parts& parts) {
  auto node = load_checkpoint_config(checkpoint);
  node.erase("callbacks");
  ConfigSections of_the_training;
  ConfigProblems not_of_a_prediction;
  parts.observers.take_sections(node, of_the_training, not_of_a_prediction);
  if (auto* output = node.find("output"); output != nullptr && output->is_map()) output->erase("logger");
  if (auto* trainer = node.find("trainer"); trainer != nullptr && trainer->is_map()) trainer->erase("profiler");
  for (const auto& text : overrides) apply_override(node, text);
  auto config = bind_config(node, parts);
  config.model.options.erase("weights");
  config.model = parts.models.without_tuning(config.model);
  return config;
}

}  // namespace npu_train::detail
