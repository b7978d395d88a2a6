#include "hub_networks.hpp"

#include <utility>

namespace npu_train {
namespace {

using Read = void (*)(const Json&, HubNetwork&);

const std::vector<std::pair<std::string, Read>>& readers() {
  static const std::vector<std::pair<std::string, Read>> all = {
      {"llama", detail::read_llama},     {"mistral", detail::read_mistral}, {"gpt2", detail::read_gpt2},
      {"chatglm", detail::read_chatglm}, {"bert", detail::read_bert},       {"clip", detail::read_clip},
      {"vit", detail::read_vit},         {"deit", detail::read_deit},       {"resnet", detail::read_resnet}};
  return all;
}

}  // namespace

std::vector<std::string> hub_model_types() {
  std::vector<std::string> out;
  for (const auto& [type, read] : readers()) out.push_back(type);
  return out;
}

std::optional<HubNetwork> hub_network(const Json& config) {
  const auto *type = config.find("model_type"), *architecture = config.find("architecture");
  if (type == nullptr && architecture != nullptr && architecture->is_text()) {
    HubNetwork out;
    detail::read_timm(config, out);
    return out;
  }
  if (type == nullptr || !type->is_text()) return std::nullopt;
  for (const auto& [known, read] : readers())
    if (detail::hub_text(*type) == known) {
      HubNetwork out;
      read(config, out);
      return out;
    }
  return std::nullopt;
}

}  // namespace npu_train
