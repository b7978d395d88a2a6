#include <map>
#include <regex>
#include <string>

#include "models/families.hpp"
#include "models/hub/hub_reader.hpp"
#include "npu_train/models/vit.hpp"
#include "npu_train/models/weight_resize.hpp"

namespace npu_train::detail {
namespace {

// Reads the keys that ViT and DeiT share.
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
  // Ignores the pooler, which belongs to the model without a head; our network does not have its outputs.
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

// Implements ModelFamily::read_timm. Networks of timm with other activations, norms or positions have further words in their names.
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
  // Uses the size that the name determines, unless model_args overrides it.
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
  // Any initial value works, because the file contains the scales.
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

const char* const kVitBlock = "encoder.layers.encoder_layer_#.";

// A family's rule for a tensor of a block: the parts of both names after the block's number.
struct BlockRule {
  const char* ours;
  const char* theirs;
};

// Returns the rules. `parts` are rules for tensors that only some of these networks have.
std::vector<NameRule> vit_rules(const std::string& patches, const std::string& class_token, const std::string& positions,
                                const std::string& last_norm, const std::string& block, const std::vector<BlockRule>& of_block,
                                const std::vector<BlockRule>& parts = {}) {
  std::vector<NameRule> out = {{"conv_proj.*", patches}};
  for (const auto& rule : of_block) out.push_back({kVitBlock + std::string(rule.ours), block + rule.theirs});
  out.push_back({"class_token", class_token});
  out.push_back({"encoder.pos_embedding", positions});
  out.push_back({"encoder.ln.*", last_norm});
  for (const auto& rule : parts) out.push_back({rule.ours, rule.theirs, /*transposed=*/false, /*above=*/false, /*part=*/true});
  return out;
}

Naming vit_naming(const std::string& library) {
  if (library == "torchvision") {
    const std::vector<BlockRule> block = {{"ln_1.*", "ln_1.*"},
                                          {"self_attention.in_proj_*", "self_attention.in_proj_*"},
                                          {"self_attention.q_proj.*", "self_attention.q_proj.*"},
                                          {"self_attention.k_proj.*", "self_attention.k_proj.*"},
                                          {"self_attention.v_proj.*", "self_attention.v_proj.*"},
                                          {"self_attention.out_proj.*", "self_attention.out_proj.*"},
                                          {"ln_2.*", "ln_2.*"},
                                          {"mlp.0.*", "mlp.0.*"},
                                          {"mlp.3.*", "mlp.3.*"},
                                          {"mlp.0.*", "mlp.linear_1.*"},  // for torchvision's published files
                                          {"mlp.3.*", "mlp.linear_2.*"},
                                          {"layer_scale_1", "layer_scale_1"},
                                          {"layer_scale_2", "layer_scale_2"},
                                          {"self_attention.q_norm.*", "self_attention.q_norm.*"},
                                          {"self_attention.k_norm.*", "self_attention.k_norm.*"}};
    const std::vector<BlockRule> parts = {{"register_tokens", "register_tokens"},
                                          {"distillation_token", "distillation_token"},
                                          {"heads.distillation.*", "heads.distillation.*"}};
    return {{library},
            "",
            vit_rules("conv_proj.*", "class_token", "encoder.pos_embedding", "encoder.ln.*", kVitBlock, block, parts),
            {"heads.head.*", "heads.head.*"}};
  }
  if (library == "timm") {
    const std::vector<BlockRule> block = {{"ln_1.*", "norm1.*"},
                                          {"self_attention.in_proj_*", "attn.qkv.*"},
                                          {"self_attention.out_proj.*", "attn.proj.*"},
                                          {"ln_2.*", "norm2.*"},
                                          {"mlp.0.*", "mlp.fc1.*"},
                                          {"mlp.3.*", "mlp.fc2.*"},
                                          {"layer_scale_1", "ls1.gamma"},
                                          {"layer_scale_2", "ls2.gamma"},
                                          {"layer_scale_1", "gamma_1"},  // for the oldest files of DeiT-III
                                          {"layer_scale_2", "gamma_2"},
                                          {"self_attention.q_norm.*", "attn.q_norm.*"},
                                          {"self_attention.k_norm.*", "attn.k_norm.*"}};
    const std::vector<BlockRule> parts = {{"register_tokens", "reg_token"},
                                          {"register_tokens", "register_tokens"},  // for the files of DINOv2
                                          {"distillation_token", "dist_token"},
                                          {"heads.distillation.*", "head_dist.*"}};
    return {{library},
            "",
            vit_rules("patch_embed.proj.*", "cls_token", "pos_embed", "norm.*", "blocks.#.", block, parts),
            {"heads.head.*", "head.*"},
            /*splits_projections=*/false,
            /*tied=*/"",
            /*unneeded=*/{},
            /*foreign=*/{"norm_pre.*", "fc_norm.*", "attn_pool.*", "patch_embed.norm.*"}};
  }
  const bool new_names = library == "hf" || library == "deit";
  const std::vector<BlockRule> modules = {{"ln_1.*", "layernorm_before.*"},
                                          {"self_attention.q_proj.*", "attention.q_proj.*"},
                                          {"self_attention.k_proj.*", "attention.k_proj.*"},
                                          {"self_attention.v_proj.*", "attention.v_proj.*"},
                                          {"self_attention.out_proj.*", "attention.o_proj.*"},
                                          {"ln_2.*", "layernorm_after.*"},
                                          {"mlp.0.*", "mlp.fc1.*"},
                                          {"mlp.3.*", "mlp.fc2.*"}};
  const std::vector<BlockRule> older = {{"ln_1.*", "layernorm_before.*"},
                                        {"self_attention.q_proj.*", "attention.attention.query.*"},
                                        {"self_attention.k_proj.*", "attention.attention.key.*"},
                                        {"self_attention.v_proj.*", "attention.attention.value.*"},
                                        {"self_attention.out_proj.*", "attention.output.dense.*"},
                                        {"ln_2.*", "layernorm_after.*"},
                                        {"mlp.0.*", "intermediate.dense.*"},
                                        {"mlp.3.*", "output.dense.*"}};
  std::vector<BlockRule> parts = {{"distillation_token", "embeddings.distillation_token"},
                                  {"heads.head.*", "cls_classifier.*"},  // for networks with two heads
                                  {"heads.distillation.*", "distillation_classifier.*"}};
  const bool deit = library.starts_with("deit");
  return {{library},
          deit ? "deit." : "vit.",
          vit_rules("embeddings.patch_embeddings.projection.*", "embeddings.cls_token", "embeddings.position_embeddings", "layernorm.*",
                    new_names ? "layers.#." : "encoder.layer.#.", new_names ? modules : older, deit ? parts : std::vector<BlockRule>()),
          {"heads.head.*", "classifier.*"},
          /*splits_projections=*/true};
}

ConfigurationKeys vit_keys(const WeightShapes& shapes) {
  ConfigurationKeys out;
  const auto patch = shapes.size("conv_proj.weight", 2), dim = shapes.size("conv_proj.weight", 0);
  const bool distilled = shapes.size("distillation_token", 2) > 0, two_heads = shapes.size("heads.distillation.weight", 0) > 0;
  const auto tokens = shapes.size("encoder.pos_embedding", 1);
  auto side = side_of_square(tokens - (distilled ? 2 : 1));
  if (side == 0) side = side_of_square(tokens);  // the network adds positions only to the patches
  const std::string block = "encoder.layers.encoder_layer_0.";
  const auto hidden = shapes.size(block + "mlp.0.weight", 0);
  add(out, "num_classes", shapes.size("heads.head.weight", 0));
  if (patch > 0 && side > 0) add(out, "image_size", side * patch);
  add(out, "channels", shapes.size("conv_proj.weight", 1));
  add(out, "patch_size", patch);
  add(out, "dim", dim);
  add(out, "depth", shapes.layers("encoder.layers.encoder_layer_", ".ln_1.weight"));
  add(out, "mlp_dim", hidden == 4 * dim ? 0 : hidden);
  if (shapes.size(block + "layer_scale_1", 0) > 0) out.emplace_back("model.layer_scale", "1e-5");  // the initial value does not matter
  if (shapes.size(block + "self_attention.q_norm.weight", 0) > 0) out.emplace_back("model.qk_norm", "true");
  add(out, "registers", shapes.size("register_tokens", 1));
  if (distilled) out.emplace_back("model.distillation", two_heads ? "heads" : "token");
  return out;
}

void add_vit(ModelRegistry& registry) {
  add_network(registry, vit, "vit", "vision transformer of configurable size");
  add_network(registry, vit, "vit_tiny", "vision transformer, patch 16, dim 192, depth 12, heads 3", vit_tiny_options());
  add_network(registry, vit, "vit_small", "vision transformer, patch 16, dim 384, depth 12, heads 6", vit_small_options());
  add_network(registry, vit, "vit_b16", "vision transformer, patch 16, dim 768, depth 12, heads 12", vit_b16_options());
  add_network(registry, vit, "vit_b16_ascend", "vit_b16 for NPUs: split projections, tanh GELU, dropout 0.1, Xavier head",
              vit_b16_ascend_options());
  add_network(registry, vit, "vit_b32", "vision transformer, patch 32, dim 768, depth 12, heads 12", vit_b32_options());
  add_network(registry, vit, "vit_l16", "vision transformer, patch 16, dim 1024, depth 24, heads 16", vit_l16_options());
  add_network(registry, vit, "vit_tiny_cifar10", "vision transformer for 32x32 images, patch 4, dim 192, depth 12, heads 3",
              vit_tiny_cifar10_options());
}

}  // namespace

ModelFamily vit_family() {
  return {.name = "vit",
          .add = add_vit,
          .hub_types = {{"vit", read_vit}, {"deit", read_deit}},
          .read_timm = read_timm_vit,
          .namings = {vit_naming("torchvision"), vit_naming("timm"), vit_naming("hf"), vit_naming("hf4"), vit_naming("deit"),
                      vit_naming("deit4")},
          .keys_of = vit_keys,
          .in_torchvision = true};
}

}  // namespace npu_train::detail
