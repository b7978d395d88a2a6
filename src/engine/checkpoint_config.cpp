#include "engine/checkpoint_config.hpp"

#include "npu_train/train/checkpoint.hpp"

namespace npu_train::detail {

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
