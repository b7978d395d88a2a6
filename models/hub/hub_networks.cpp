// Finds the family that can read a config.json.
#include <algorithm>
#include <utility>

#include "models/families.hpp"
#include "models/hub/hub_reader.hpp"

namespace npu_train {
namespace {

HubNetwork read_timm(const Json& config) {
  HubNetwork out;
  detail::HubReader file(config, out);
  const auto name = file.text("architecture", "");
  const auto& all = detail::model_families();
  const bool known = std::any_of(all.begin(), all.end(), [&](const detail::ModelFamily& family) {
    return family.read_timm != nullptr && family.read_timm(name, config, file, out);
  });
  if (!known) {
    file.foreign("architecture", name, "those of vit, deit, deit3 and resnet that have no other parts");
    return out;
  }
  if (const auto classes = file.number("num_classes", std::nullopt); classes.value_or(0) > 0)
    file.open("num_classes", "num_classes", detail::hub_number(*classes));
  file.unused({"model_args", "num_features", "pretrained_cfg"});
  file.finish();
  return out;
}

}  // namespace

std::vector<std::string> hub_model_types() {
  std::vector<std::string> out;
  for (const auto& family : detail::model_families())
    for (const auto& [type, read] : family.hub_types) out.push_back(type);
  return out;
}

bool has_hub_config(const std::string& model) {
  for (const auto& family : detail::model_families()) {
    ModelRegistry registry("model");
    family.add(registry);
    if (registry.contains(model)) return !family.hub_types.empty();
  }
  return false;
}

std::optional<HubNetwork> hub_network(const Json& config) {
  const auto *type = config.find("model_type"), *architecture = config.find("architecture");
  if (type == nullptr && architecture != nullptr && architecture->is_text()) return read_timm(config);
  if (type == nullptr || !type->is_text()) return std::nullopt;
  for (const auto& family : detail::model_families())
    for (const auto& [known, read] : family.hub_types)
      if (detail::hub_text(*type) == known) {
        HubNetwork out;
        read(config, out);
        return out;
      }
  return std::nullopt;
}

}  // namespace npu_train
