#include <cmath>

#include "models/families.hpp"
#include "models/vit/vit_hub.hpp"
#include "npu_train/models/vit.hpp"

namespace npu_train::detail {
namespace {

const char* const kVitBlock = "encoder.layers.encoder_layer_#.";

// A family's rule for a tensor of a block: the part after the block's number in both names.
struct BlockRule {
  const char* ours;
  const char* theirs;
};

// `parts` are rules for tensors that only some of these networks have.
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
                                          {"mlp.0.*", "mlp.linear_1.*"},  // names in torchvision's published files
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
                                          {"layer_scale_1", "gamma_1"},  // names in the first files of DeiT-III
                                          {"layer_scale_2", "gamma_2"},
                                          {"self_attention.q_norm.*", "attn.q_norm.*"},
                                          {"self_attention.k_norm.*", "attn.k_norm.*"}};
    const std::vector<BlockRule> parts = {{"register_tokens", "reg_token"},
                                          {"register_tokens", "register_tokens"},  // name in the files of DINOv2
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
                                  {"heads.head.*", "cls_classifier.*"},  // of networks with two heads
                                  {"heads.distillation.*", "distillation_classifier.*"}};
  const bool deit = library.starts_with("deit");
  return {{library},
          deit ? "deit." : "vit.",
          vit_rules("embeddings.patch_embeddings.projection.*", "embeddings.cls_token", "embeddings.position_embeddings", "layernorm.*",
                    new_names ? "layers.#." : "encoder.layer.#.", new_names ? modules : older, deit ? parts : std::vector<BlockRule>()),
          {"heads.head.*", "classifier.*"},
          /*splits_projections=*/true};
}

// Returns the side of a square of `patches`; 0 if they do not form one.
int64_t side_of_square(int64_t patches) {
  const auto side = std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(patches, 0))));
  return side * side == patches ? side : 0;
}

ConfigurationKeys vit_keys(const WeightShapes& shapes) {
  ConfigurationKeys out;
  const auto patch = shapes.size("conv_proj.weight", 2), dim = shapes.size("conv_proj.weight", 0);
  const bool distilled = shapes.size("distillation_token", 2) > 0, two_heads = shapes.size("heads.distillation.weight", 0) > 0;
  const auto tokens = shapes.size("encoder.pos_embedding", 1);
  auto side = side_of_square(tokens - (distilled ? 2 : 1));
  if (side == 0) side = side_of_square(tokens);  // a network that adds positions only to the patches
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
