#include <array>
#include <map>
#include <regex>
#include <utility>

#include "models/families.hpp"
#include "models/hub/hub_reader.hpp"
#include "npu_train/models/resnet.hpp"

namespace npu_train::detail {
namespace {

// Returns our own naming, which is also that of torchvision and of timm.
Naming resnet_naming() {
  std::vector<NameRule> same;
  for (const std::string name : {"conv1.*", "layer#.#.conv1.*", "bn1.*", "layer#.#.bn1.*", "layer#.#.conv2.*", "layer#.#.bn2.*",
                                 "layer#.#.conv3.*", "layer#.#.bn3.*", "layer#.#.downsample.0.*", "layer#.#.downsample.1.*"})
    same.push_back({name, name});
  return {{"torchvision", "timm"}, "", same, {"fc.*", "fc.*"}};
}

Naming resnet_naming_of_hf() {
  const std::string block = "encoder.stages.@.layers.#.";
  std::vector<NameRule> theirs = {{"conv1.*", "embedder.embedder.convolution.*"},
                                  {"layer@.#.conv1.*", block + "layer.0.convolution.*"},
                                  {"bn1.*", "embedder.embedder.normalization.*"},
                                  {"layer@.#.downsample.0.*", block + "shortcut.convolution.*"},
                                  {"layer@.#.downsample.1.*", block + "shortcut.normalization.*"},
                                  {"layer@.#.bn1.*", block + "layer.0.normalization.*"}};
  for (const std::string layer : {"1", "2"}) {
    const auto number = std::to_string(layer[0] - '0' + 1);
    theirs.push_back({"layer@.#.conv" + number + ".*", block + "layer." + layer + ".convolution.*"});
    theirs.push_back({"layer@.#.bn" + number + ".*", block + "layer." + layer + ".normalization.*"});
  }
  return {{"hf", "hf4"}, "resnet.", theirs, {"fc.*", "classifier.1.*"}};
}

ConfigurationKeys resnet_keys(const WeightShapes& shapes) {
  // Networks by the numbers of blocks in the four stages, and by whether the blocks are bottlenecks.
  static const std::map<std::pair<std::array<int64_t, 4>, bool>, const char*> names = {{{{2, 2, 2, 2}, false}, "resnet18"},
                                                                                       {{{3, 4, 6, 3}, false}, "resnet34"},
                                                                                       {{{3, 4, 6, 3}, true}, "resnet50"},
                                                                                       {{{3, 4, 23, 3}, true}, "resnet101"},
                                                                                       {{{3, 8, 36, 3}, true}, "resnet152"}};
  std::array<int64_t, 4> blocks{};
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = shapes.layers("layer" + std::to_string(i + 1) + ".", ".conv1.weight");
  ConfigurationKeys out;
  if (const auto found = names.find({blocks, shapes.size("layer1.0.conv3.weight", 0) > 0}); found != names.end())
    out.emplace_back("model.name", found->second);
  add(out, "num_classes", shapes.size("fc.weight", 0));
  add(out, "channels", shapes.size("conv1.weight", 1));
  if (const auto kernel = shapes.size("conv1.weight", 2); kernel == 7 || kernel == 3)
    out.emplace_back("model.stem", kernel == 7 ? "imagenet" : "small");
  return out;
}

void read_resnet(const Json& config, HubNetwork& out) {
  static const std::map<std::string, std::string> names = {{"basic [2,2,2,2]", "resnet18"},
                                                           {"basic [3,4,6,3]", "resnet34"},
                                                           {"bottleneck [3,4,6,3]", "resnet50"},
                                                           {"bottleneck [3,4,23,3]", "resnet101"},
                                                           {"bottleneck [3,8,36,3]", "resnet152"}};
  HubReader file(config, out);
  const auto list = [&](const char* key, const std::string& standard) {
    file.unused({key});
    const auto* found = config.find(key);
    return found != nullptr ? found->dump(0) : standard;
  };
  const auto compact = [](std::string text) {
    std::erase(text, ' ');
    return text;
  };
  const auto type = file.text("layer_type", "bottleneck");
  const auto depths = compact(list("depths", "[3,4,6,3]")), widths = compact(list("hidden_sizes", "[256,512,1024,2048]"));
  const auto found = names.find(type + " " + depths);
  if (found != names.end()) out.model = found->second;
  if (found == names.end()) file.foreign("depths", depths + " with layer_type " + type, "those of ResNet-18, 34, 50, 101 or 152");
  const bool basic = type == "basic";
  if (widths != (basic ? "[64,128,256,512]" : "[256,512,1024,2048]"))
    file.foreign("hidden_sizes", widths, basic ? "[64,128,256,512]" : "[256,512,1024,2048]");
  file.size("num_channels", 3, "channels");
  file.must_be("embedding_size", 64);
  file.must_be("hidden_act", "relu");
  file.must_be("downsample_in_first_stage", false);
  if (!basic) file.must_be("downsample_in_bottleneck", false);
  file.classes({"ResNetForImageClassification"});
  file.architectures({"ResNetForImageClassification", "ResNetModel"});
  file.unused({"downsample_in_bottleneck", "out_features", "out_indices", "stage_names", "transformers.js_config"});
  file.finish();
}

// Reads a plain ResNet. timm's networks with other parts have further words in their names.
bool read_timm_resnet(const std::string& architecture, const Json& config, HubReader& file, HubNetwork& out) {
  if (!std::regex_match(architecture, std::regex("resnet(18|34|50|101|152)"))) return false;
  out.model = architecture;
  HubReader args(config, out, "model_args");
  args.size("in_chans", 3, "channels");
  args.unused({"num_classes", "global_pool", "drop_rate", "drop_path_rate", "zero_init_last"});
  args.finish();
  file.must_be("global_pool", "avg");
  return true;
}

void add_resnet(ModelRegistry& registry) {
  for (const int64_t depth : {18, 34, 50, 101, 152})
    registry.add<ResNetOptions>("resnet" + std::to_string(depth), "residual network of " + std::to_string(depth) + " layers",
                                [depth](const ResNetOptions& options) { return resnet(depth, options); });
}

}  // namespace

ModelFamily resnet_family() {
  return {.name = "resnet",
          .add = add_resnet,
          .hub_types = {{"resnet", read_resnet}},
          .read_timm = read_timm_resnet,
          .namings = {resnet_naming(), resnet_naming_of_hf()},
          .keys_of = resnet_keys,
          .in_torchvision = true};
}

}  // namespace npu_train::detail
