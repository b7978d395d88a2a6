// Reads the config.json of ViT and DeiT in transformers and in timm. Defaults for missing keys are those of the library.
#include <map>
#include <regex>
#include <string>

#include "models/vit/vit_hub.hpp"

namespace npu_train::detail {
namespace {

// Reads what ViT and DeiT have in common.
void read_image_encoder(const Json& config, HubReader& file, HubNetwork& out) {
  out.model = "vit";
  const auto dim = file.size("hidden_size", 768, "dim");
  file.size("num_hidden_layers", 12, "depth");
  file.heads("num_attention_heads", 12);
  file.size("intermediate_size", 3072, "mlp_dim", static_cast<double>(4 * dim));
  file.size("patch_size", 16, "patch_size");
  file.size("num_channels", 3, "channels");
  const auto side = file.number("image_size", 224).value_or(224);
  file.open("image_size", "image_size", ConfigNode(static_cast<int64_t>(side)));
  const auto activation = file.text("hidden_act", "gelu");
  file.activation("hidden_act", "gelu");
  if (auto& last = out.options.back(); last.option == "activation" && last.value.scalar() == "gelu_tanh") {
    last.value = ConfigNode("gelu");
    file.set("hidden_act", activation, "gelu", ConfigNode("tanh"));
  } else if (last.option == "activation" && last.value.scalar() == "gelu") {
    file.set("hidden_act", activation, "gelu", ConfigNode("exact"));
  }
  file.number("layer_norm_eps", 1e-12, "norm_eps");
  file.must_be("qkv_bias", true);
  // The pooler belongs to the model without a head, whose outputs ours does not have.
  file.unused({"attention_probs_dropout_prob", "encoder_stride", "hidden_dropout_prob", "pooler_act", "pooler_output_size",
               "transformers.js_config"});
}

struct TimmSize {
  int64_t dim, depth, heads;
};

// Parses [image_size, image_size] or a number; 0 if it is missing.
int64_t side_of_image(const Json* value) {
  if (value == nullptr) return 0;
  if (value->is_array() && !value->items(kHubFile).empty()) return side_of_image(&value->items(kHubFile).back());
  return value->kind() == Json::Kind::Integer ? value->integer(kHubFile) : 0;
}

}  // namespace

void read_vit(const Json& config, HubNetwork& out) {
  HubReader file(config, out);
  read_image_encoder(config, file, out);
  file.set("model_type", "vit", "distillation", ConfigNode("none"));
  file.architectures({"ViTForImageClassification", "ViTModel"});
  file.classes({"ViTForImageClassification"});
  file.finish();
}

void read_deit(const Json& config, HubNetwork& out) {
  constexpr const char *kOneHead = "DeiTForImageClassification", *kTwoHeads = "DeiTForImageClassificationWithTeacher";
  HubReader file(config, out);
  read_image_encoder(config, file, out);
  const bool two = file.has_architecture(kTwoHeads);
  file.set("architectures", two ? kTwoHeads : kOneHead, "distillation", ConfigNode(two ? "heads" : "token"));
  file.architectures({kOneHead, kTwoHeads, "DeiTModel"});
  file.classes({kOneHead, kTwoHeads});
  file.finish();
}

// The names of timm whose networks have other activations, norms or positions have further words.
bool read_timm_vit(const std::string& architecture, const Json& config, HubReader& file, HubNetwork& out) {
  static const std::regex known(
      "(vit|deit|deit3)_(tiny|small|medium|base|large|huge)_(distilled_)?patch(\\d{1,2})(?:_reg(\\d))?_(dinov2)?(?:\\d{3})?");
  std::smatch name;
  if (!std::regex_match(architecture, name, known)) return false;
  static const std::map<std::string, TimmSize> sizes = {{"tiny", {192, 12, 3}},  {"small", {384, 12, 6}},   {"medium", {512, 12, 8}},
                                                        {"base", {768, 12, 12}}, {"large", {1024, 24, 16}}, {"huge", {1280, 32, 16}}};
  out.model = "vit";
  const auto& size = sizes.at(name[2]);
  HubReader args(config, out, "model_args");
  const auto standard = [](int64_t value) { return static_cast<double>(value); };
  // The name determines the size unless model_args override it.
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
  // The file contains the scales, so any initial value works.
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
  return true;
}

}  // namespace npu_train::detail
