#include "models/families.hpp"
#include "models/hub/hub_reader.hpp"
#include "npu_train/models/clip.hpp"
#include "npu_train/models/weight_resize.hpp"

namespace npu_train::detail {
namespace {

Naming clip_naming() {
  std::vector<NameRule> rules;
  const auto add = [&](const std::string& ours, const std::string& theirs) { rules.push_back({ours, theirs}); };
  add("vision.class_embedding", "vision_model.embeddings.class_embedding");
  add("text.token_embedding.weight", "text_model.embeddings.token_embedding.weight");
  add("vision.patch.weight", "vision_model.embeddings.patch_embedding.weight");
  add("vision.ln_pre.*", "vision_model.pre_layrnorm.*");
  add("vision.ln_post.*", "vision_model.post_layernorm.*");
  add("vision.projection.weight", "visual_projection.weight");
  add("text.ln.*", "text_model.final_layer_norm.*");
  add("text.projection.weight", "text_projection.weight");
  add("logit_scale", "logit_scale");
  for (const std::string tower : {"vision", "text"}) {
    add(tower + ".position_embedding.weight", tower + "_model.embeddings.position_embedding.weight");
    const auto block = tower + ".blocks.#.", layer = tower + "_model.encoder.layers.#.";
    add(block + "ln_1.*", layer + "layer_norm1.*");
    for (const std::string part : {"q_proj", "k_proj", "v_proj"})
      add(block + "attention." + part + ".*", layer + "self_attn." + part + ".*");
    add(block + "attention.proj.*", layer + "self_attn.out_proj.*");
    add(block + "ln_2.*", layer + "layer_norm2.*");
    add(block + "mlp.fc1.*", layer + "mlp.fc1.*");
    add(block + "mlp.fc2.*", layer + "mlp.fc2.*");
  }
  return {{"hf", "hf4"}, "", rules, {}, /*splits_projections=*/true};
}

ConfigurationKeys clip_keys(const WeightShapes& shapes) {
  ConfigurationKeys out;
  const auto patch = shapes.size("vision.patch.weight", 2);
  const auto side = side_of_square(shapes.size("vision.position_embedding.weight", 0) - 1);
  if (patch > 0 && side > 0) add(out, "image_size", side * patch);
  add(out, "patch_size", patch);
  add(out, "vision_layers", shapes.layers("vision.blocks.", ".ln_1.weight"));
  const auto vision_dim = shapes.size("vision.class_embedding", 0), vision_hidden = shapes.size("vision.blocks.0.mlp.fc1.weight", 0);
  const auto text_dim = shapes.size("text.token_embedding.weight", 1), text_hidden = shapes.size("text.blocks.0.mlp.fc1.weight", 0);
  add(out, "vision_dim", vision_dim);
  add(out, "vision_hidden", vision_hidden == 4 * vision_dim ? 0 : vision_hidden);
  add(out, "vocab_size", shapes.size("text.token_embedding.weight", 0));
  add(out, "context", shapes.size("text.position_embedding.weight", 0));
  add(out, "text_layers", shapes.layers("text.blocks.", ".ln_1.weight"));
  add(out, "text_dim", text_dim);
  add(out, "text_hidden", text_hidden == 4 * text_dim ? 0 : text_hidden);
  add(out, "projection", shapes.size("text.projection.weight", 0));
  return out;
}

// Merges "vision_config_dict" over "vision_config", as transformers does.
Json merged_section(const Json& config, const std::string& name) {
  Json out = config;
  const auto* older = config.find(name + "_dict");
  if (older == nullptr || !older->is_object()) return out;
  const auto* section = config.find(name);
  Json merged = section != nullptr && section->is_object() ? *section : Json::object();
  for (const auto& [key, value] : older->members(kHubFile)) merged.set(key, value);
  out.set(name, merged);
  return out;
}

// Reads a tower of CLIP; `tower` is the prefix of our options.
HubReader tower_of(const Json& config, HubNetwork& out, const std::string& tower, int64_t dim, int64_t heads) {
  const auto section = tower + "_config";
  HubReader file(merged_section(config, section), out, section);
  const auto width = file.size("hidden_size", dim, tower + "_dim");
  file.size("intermediate_size", 4 * dim, tower + "_hidden", static_cast<double>(4 * width));
  file.size("num_hidden_layers", 12, tower + "_layers");
  file.heads("num_attention_heads", heads, tower + "_heads");
  file.activation("hidden_act", "quick_gelu");
  file.number("layer_norm_eps", 1e-5, "norm_eps");
  // Ignores the tower's own projection_dim, which does not affect the common space.
  file.unused({"attention_dropout", "dropout", "projection_dim"});
  return file;
}

void read_clip(const Json& config, HubNetwork& out) {
  out.model = "clip";
  HubReader file(config, out);
  file.size("projection_dim", 512, "projection");
  auto vision = tower_of(config, out, "vision", 768, 12);
  vision.size("image_size", 224, "image_size");
  vision.size("patch_size", 32, "patch_size");
  vision.must_be("num_channels", 3);
  vision.finish();
  auto text = tower_of(config, out, "text", 512, 8);
  text.size("vocab_size", 49408, "vocab_size");
  text.size("max_position_embeddings", 77, "context");
  // Files of the first years have the value 2, for which transformers reads a text at its token with the largest id.
  const auto end = static_cast<int64_t>(text.number("eos_token_id", 49407).value_or(49407));
  text.set("eos_token_id", std::to_string(end), "end_token", ConfigNode(end == 2 ? int64_t{-1} : end));
  text.finish();
  file.architectures({"CLIPModel"});
  file.unused({"logit_scale_init_value", "text_config", "text_config_dict", "tie_word_embeddings", "vision_config", "vision_config_dict",
               "transformers.js_config"});
  file.finish();
}

void add_clip(ModelRegistry& registry) {
  add_network(registry, clip, "clip", "CLIP of configurable size");
  add_network(registry, clip, "clip_vit_b32", "CLIP with 151 million parameters: OpenAI's ViT-B/32", clip_vit_b32_options());
  add_network(registry, clip, "clip_tiny", "CLIP for bytes and images of 32 x 32: layers 2, heads 2, dim 64 in both towers",
              clip_tiny_options());
}

}  // namespace

ModelFamily clip_family() {
  return {.name = "clip",
          .add = add_clip,
          .hub_types = {{"clip", read_clip}},
          .namings = {own_naming(clip_naming()), clip_naming()},
          .keys_of = clip_keys};
}

}  // namespace npu_train::detail
