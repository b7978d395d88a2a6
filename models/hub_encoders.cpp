// Encoders of texts and images of Hugging Face. The defaults are those of transformers for files without the key.
#include <map>
#include <set>
#include <string>

#include "hub_networks.hpp"

namespace npu_train::detail {
namespace {

bool has_architecture(const Json& config, const std::string& name) {
  const auto* all = config.find("architectures");
  if (all == nullptr || !all->is_array()) return false;
  for (const auto& one : all->items(kHubFile))
    if (one.is_text() && one.text(kHubFile) == name) return true;
  return false;
}

// transformers takes the values of "vision_config_dict" before those of "vision_config".
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

// `tower` begins the names of our options.
HubReader tower_of(const Json& config, HubNetwork& out, const std::string& tower, int64_t dim, int64_t heads) {
  const auto section = tower + "_config";
  HubReader file(merged_section(config, section), out, section);
  const auto width = file.size("hidden_size", dim, tower + "_dim");
  file.size("intermediate_size", 4 * dim, tower + "_hidden", static_cast<double>(4 * width));
  file.size("num_hidden_layers", 12, tower + "_layers");
  file.heads("num_attention_heads", heads, tower + "_heads");
  file.activation("hidden_act", "quick_gelu");
  file.number("layer_norm_eps", 1e-5, "norm_eps");
  // Its own projection_dim is not that of the common space.
  file.unused({"attention_dropout", "dropout", "projection_dim"});
  return file;
}

}  // namespace

void read_bert(const Json& config, HubNetwork& out) {
  out.model = "bert";
  HubReader file(config, out);
  const auto dim = file.size("hidden_size", 768, "dim");
  file.size("vocab_size", 30522, "vocab_size");
  file.size("max_position_embeddings", 512, "context");
  file.size("num_hidden_layers", 12, "layers");
  file.heads("num_attention_heads", 12);
  file.size("intermediate_size", 3072, "hidden", static_cast<double>(4 * dim));
  file.size("type_vocab_size", 2, "token_types");
  file.activation("hidden_act", "gelu");
  file.number("layer_norm_eps", 1e-12, "norm_eps");
  if (has_architecture(config, "BertForSequenceClassification")) file.open("id2label", "num_classes", ConfigNode(file.labels()));
  file.must_be("position_embedding_type", "absolute");
  file.must_be("tie_word_embeddings", true);
  file.architectures({"BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification", "BertModel"});
  file.unused({"attention_probs_dropout_prob", "classifier_dropout", "directionality", "hidden_dropout_prob", "pooler_fc_size",
               "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "transformers.js_config"});
  file.finish();
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
  // Files of the first years have 2, and transformers reads their texts at the largest token.
  const auto end = static_cast<int64_t>(text.number("eos_token_id", 49407).value_or(49407));
  text.set("eos_token_id", std::to_string(end), "end_token", ConfigNode(end == 2 ? int64_t{-1} : end));
  text.finish();
  file.architectures({"CLIPModel"});
  file.unused({"logit_scale_init_value", "text_config", "text_config_dict", "tie_word_embeddings", "vision_config", "vision_config_dict",
               "transformers.js_config"});
  file.finish();
}

namespace {

// What ViT and DeiT have in common.
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

void read_classes(const Json& config, HubReader& file, const std::set<std::string>& classifiers) {
  for (const auto& name : classifiers)
    if (has_architecture(config, name)) return file.open("id2label", "num_classes", ConfigNode(file.labels()));
}

}  // namespace

void read_vit(const Json& config, HubNetwork& out) {
  HubReader file(config, out);
  read_image_encoder(config, file, out);
  file.set("model_type", "vit", "distillation", ConfigNode("none"));
  file.architectures({"ViTForImageClassification", "ViTModel"});
  read_classes(config, file, {"ViTForImageClassification"});
  file.finish();
}

void read_deit(const Json& config, HubNetwork& out) {
  constexpr const char *kOneHead = "DeiTForImageClassification", *kTwoHeads = "DeiTForImageClassificationWithTeacher";
  HubReader file(config, out);
  read_image_encoder(config, file, out);
  const bool two = has_architecture(config, kTwoHeads);
  file.set("architectures", two ? kTwoHeads : kOneHead, "distillation", ConfigNode(two ? "heads" : "token"));
  file.architectures({kOneHead, kTwoHeads, "DeiTModel"});
  read_classes(config, file, {kOneHead, kTwoHeads});
  file.finish();
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
  read_classes(config, file, {"ResNetForImageClassification"});
  file.architectures({"ResNetForImageClassification", "ResNetModel"});
  file.unused({"downsample_in_bottleneck", "out_features", "out_indices", "stage_names", "transformers.js_config"});
  file.finish();
}

}  // namespace npu_train::detail
