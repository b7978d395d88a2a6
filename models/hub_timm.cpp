// The config.json of timm on Hugging Face's Hub: the name of a network, and the arguments that change it.
#include <map>
#include <regex>
#include <string>

#include "hub_networks.hpp"

namespace npu_train::detail {
namespace {

struct TimmSize {
  int64_t dim, depth, heads;
};

// [image_size, image_size] or a number; 0 without one.
int64_t side_of_image(const Json* value) {
  if (value == nullptr) return 0;
  if (value->is_array() && !value->items(kHubFile).empty()) return side_of_image(&value->items(kHubFile).back());
  return value->kind() == Json::Kind::Integer ? value->integer(kHubFile) : 0;
}

void read_timm_vit(const Json& config, HubReader& file, HubNetwork& out, const std::smatch& name) {
  static const std::map<std::string, TimmSize> sizes = {{"tiny", {192, 12, 3}},  {"small", {384, 12, 6}},   {"medium", {512, 12, 8}},
                                                        {"base", {768, 12, 12}}, {"large", {1024, 24, 16}}, {"huge", {1280, 32, 16}}};
  out.model = "vit";
  const auto& size = sizes.at(name[2]);
  HubReader args(config, out, "model_args");
  const auto standard = [](int64_t value) { return static_cast<double>(value); };
  // A size is that of the name unless model_args have another one.
  const auto set = [&](const char* key, int64_t of_name, const char* option) {
    const double value = args.number(key, standard(of_name)).value_or(standard(of_name));
    args.set(key, hub_text(value), option, hub_number(value), /*size=*/true);
  };
  set("embed_dim", size.dim, "dim");
  set("depth", size.depth, "depth");
  set("num_heads", size.heads, "heads");
  set("patch_size", std::stoll(name[4]), "patch_size");
  set("in_chans", 3, "channels");
  const bool distilled = name[3].matched, registers = name[5].matched, scaled = name[1] == "deit3" || name[6].matched;
  set("reg_tokens", registers ? std::stoll(name[5]) : 0, "registers");
  args.flag("qk_norm", false, "qk_norm");
  file.set("architecture", name[0], "distillation", ConfigNode(distilled ? "heads" : "none"));
  // The file has the factors; any initial value makes them.
  const auto scale = args.number("init_values", scaled ? std::optional(1e-5) : std::nullopt);
  if (scale) args.open("init_values", "layer_scale", hub_number(*scale == 0 ? 1e-5 : *scale));
  const auto* given = config.find("model_args");
  const auto side = side_of_image(given != nullptr ? given->find("img_size") : nullptr);
  args.unused({"img_size", "no_embed_class", "num_classes", "global_pool", "drop_rate", "drop_path_rate", "attn_drop_rate",
               "proj_drop_rate", "pos_drop_rate", "patch_drop_rate", "dynamic_img_size", "strict_img_size"});
  args.must_be("qkv_bias", true);
  args.must_be("class_token", true);
  args.finish();
  if (side > 0) file.open("model_args", "image_size", ConfigNode(side));
  file.set("architecture", name[0], "activation", ConfigNode("gelu"));
  file.set("architecture", name[0], "gelu", ConfigNode("exact"));
  file.set("architecture", name[0], "norm_eps", ConfigNode(1e-6));
  file.must_be("global_pool", "token");
}

}  // namespace

void read_timm(const Json& config, HubNetwork& out) {
  // Names of networks whose blocks ours has: not those with other activations, norms or positions, which have further words in their names.
  static const std::regex vit(
      "(vit|deit|deit3)_(tiny|small|medium|base|large|huge)_(distilled_)?patch(\\d{1,2})(?:_reg(\\d))?_(dinov2)?(?:\\d{3})?");
  static const std::regex resnet("resnet(18|34|50|101|152)");
  HubReader file(config, out);
  const auto name = file.text("architecture", "");
  std::smatch found;
  if (std::regex_match(name, found, vit)) {
    read_timm_vit(config, file, out, found);
  } else if (std::regex_match(name, found, resnet)) {
    out.model = name;
    HubReader args(config, out, "model_args");
    args.size("in_chans", 3, "channels");
    args.unused({"num_classes", "global_pool", "drop_rate", "drop_path_rate", "zero_init_last"});
    args.finish();
    file.must_be("global_pool", "avg");
  } else {
    return file.foreign("architecture", name, "those of vit, deit, deit3 and resnet that have no other parts");
  }
  if (const auto classes = file.number("num_classes", std::nullopt); classes.value_or(0) > 0)
    file.open("num_classes", "num_classes", hub_number(*classes));
  file.unused({"model_args", "num_features", "pretrained_cfg"});
  file.finish();
}

}  // namespace npu_train::detail
