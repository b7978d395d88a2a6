#include "nn/weight_rules.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace npu_train::detail {
namespace {

// The values of the wildcards of a pattern, in their order. At most three: "layer@.#.conv1.*".
struct Captured {
  std::array<int64_t, 2> numbers{};
  size_t count = 0;
  std::string_view rest;
};

std::optional<Captured> match(std::string_view pattern, std::string_view name) {
  Captured out;
  for (; !pattern.empty(); pattern.remove_prefix(1)) {
    const char c = pattern.front();
    if (c == '*') {
      out.rest = name;
      return name.empty() ? std::nullopt : std::optional(out);
    }
    if (c == '#' || c == '@') {
      size_t digits = 0;
      int64_t number = 0;
      for (; digits < name.size() && digits < 6 && name[digits] >= '0' && name[digits] <= '9'; ++digits)
        number = 10 * number + name[digits] - '0';
      if (digits == 0 || (digits > 1 && name[0] == '0')) return std::nullopt;
      out.numbers[out.count++] = number;
      name.remove_prefix(digits);
    } else if (name.empty() || name.front() != c) {
      return std::nullopt;
    } else {
      name.remove_prefix(1);
    }
  }
  return name.empty() ? std::optional(out) : std::nullopt;
}

// `shift` is added to the number of an @; "" if that gives a number below 0.
std::string fill(std::string_view pattern, const Captured& captured, int64_t shift) {
  std::string out;
  size_t at = 0;
  for (const char c : pattern) {
    if (c == '*') {
      out += captured.rest;
    } else if (c == '#' || c == '@') {
      const auto number = captured.numbers[at++] + (c == '@' ? shift : 0);
      if (number < 0) return "";
      out += std::to_string(number);
    } else {
      out += c;
    }
  }
  return out;
}

// "encoder.layer.#.*", of a rule for "encoder.layer.#.output.dense.*"; "" of a rule for a tensor outside of the blocks.
std::string block_of(std::string_view pattern) {
  const auto number = pattern.find_last_of("#@");
  return number == std::string_view::npos ? "" : std::string(pattern.substr(0, number + 1)) + ".*";
}

const char* const kVitBlock = "encoder.layers.encoder_layer_#.";

// A family's rules for a block: what follows its number in both names.
struct BlockRule {
  const char* ours;
  const char* theirs;
};

// `parts` are the names of what some of these networks have.
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
                                          {"mlp.0.*", "mlp.linear_1.*"},  // in torchvision's published files
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
                                          {"layer_scale_1", "gamma_1"},  // in the first files of DeiT-III
                                          {"layer_scale_2", "gamma_2"},
                                          {"self_attention.q_norm.*", "attn.q_norm.*"},
                                          {"self_attention.k_norm.*", "attn.k_norm.*"}};
    const std::vector<BlockRule> parts = {{"register_tokens", "reg_token"},
                                          {"register_tokens", "register_tokens"},  // in the files of DINOv2
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
                                  {"heads.head.*", "cls_classifier.*"},  // of two heads
                                  {"heads.distillation.*", "distillation_classifier.*"}};
  const bool deit = library.starts_with("deit");
  return {{library},
          deit ? "deit." : "vit.",
          vit_rules("embeddings.patch_embeddings.projection.*", "embeddings.cls_token", "embeddings.position_embeddings", "layernorm.*",
                    new_names ? "layers.#." : "encoder.layer.#.", new_names ? modules : older, deit ? parts : std::vector<BlockRule>()),
          {"heads.head.*", "classifier.*"},
          /*splits_projections=*/true};
}

Naming resnet_naming(const std::vector<std::string>& libraries) {
  if (libraries.front() == "torchvision") {
    std::vector<NameRule> same;
    for (const std::string name : {"conv1.*", "layer#.#.conv1.*", "bn1.*", "layer#.#.bn1.*", "layer#.#.conv2.*", "layer#.#.bn2.*",
                                   "layer#.#.conv3.*", "layer#.#.bn3.*", "layer#.#.downsample.0.*", "layer#.#.downsample.1.*"})
      same.push_back({name, name});
    return {libraries, "", same, {"fc.*", "fc.*"}};
  }
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
  return {libraries, "resnet.", theirs, {"fc.*", "classifier.1.*"}};
}

// Hugging Face's blocks store the matrices of linear layers as [in, out] ("Conv1D"). Its state of a model with a head repeats the token
// embedding as lm_head.weight.
Naming gpt2_naming(const std::vector<std::string>& libraries) {
  const bool own = libraries.front() == "torchvision";
  std::vector<NameRule> rules;
  const auto add = [&](const std::string& ours, const std::string& theirs, bool matrix = false) {
    rules.push_back({ours, own ? ours : theirs, !own && matrix});
  };
  add("token_embedding.weight", "wte.weight");
  add("position_embedding.weight", "wpe.weight");
  add("blocks.#.ln_1.*", "h.#.ln_1.*");
  add("blocks.#.attention.qkv.*", "h.#.attn.c_attn.*", true);
  add("blocks.#.attention.proj.*", "h.#.attn.c_proj.*", true);
  add("blocks.#.ln_2.*", "h.#.ln_2.*");
  add("blocks.#.mlp.fc1.*", "h.#.mlp.c_fc.*", true);
  add("blocks.#.mlp.fc2.*", "h.#.mlp.c_proj.*", true);
  add("ln.*", "ln_f.*");
  return {libraries,
          own ? "" : "transformer.",
          rules,
          {"head.weight", own ? "head.weight" : "lm_head.weight"},
          /*splits_projections=*/false,
          /*tied=*/"token_embedding.weight",
          /*unneeded=*/{"h.#.attn.bias", "h.#.attn.masked_bias"},
          /*foreign=*/{"lm_head.bias"}};
}

Naming llama_naming(const std::vector<std::string>& libraries) {
  const bool own = libraries.front() == "torchvision";
  std::vector<NameRule> rules;
  const auto add = [&](const std::string& ours, const std::string& theirs) { rules.push_back({ours, own ? ours : theirs}); };
  add("token_embedding.weight", "embed_tokens.weight");
  add("blocks.#.norm_1.weight", "layers.#.input_layernorm.weight");
  add("blocks.#.attention.q_proj.weight", "layers.#.self_attn.q_proj.weight");
  add("blocks.#.attention.k_proj.weight", "layers.#.self_attn.k_proj.weight");
  add("blocks.#.attention.v_proj.weight", "layers.#.self_attn.v_proj.weight");
  add("blocks.#.attention.proj.weight", "layers.#.self_attn.o_proj.weight");
  add("blocks.#.norm_2.weight", "layers.#.post_attention_layernorm.weight");
  add("blocks.#.mlp.gate.weight", "layers.#.mlp.gate_proj.weight");
  add("blocks.#.mlp.up.weight", "layers.#.mlp.up_proj.weight");
  add("blocks.#.mlp.down.weight", "layers.#.mlp.down_proj.weight");
  add("norm.weight", "norm.weight");
  return {libraries,
          own ? "" : "model.",
          rules,
          {"head.weight", own ? "head.weight" : "lm_head.weight"},
          /*splits_projections=*/true,
          /*tied=*/"token_embedding.weight",
          /*unneeded=*/{"layers.#.self_attn.rotary_emb.inv_freq"},
          /*foreign=*/{"lm_head.bias", "norm.bias"}};
}

// Its projection has the query, key and value of each head together, unlike GPT-2's of the name qkv.
Naming glm_naming(const std::vector<std::string>& libraries) {
  const bool own = libraries.front() == "torchvision";
  std::vector<NameRule> rules;
  const auto add = [&](const std::string& ours, const std::string& theirs) { rules.push_back({ours, own ? ours : theirs}); };
  add("blocks.#.attention.query_key_value.*", "layers.#.attention.query_key_value.*");
  add("token_embedding.weight", "word_embeddings.weight");
  add("blocks.#.ln_1.*", "layers.#.input_layernorm.*");
  add("blocks.#.attention.proj.*", "layers.#.attention.dense.*");
  add("blocks.#.ln_2.*", "layers.#.post_attention_layernorm.*");
  add("blocks.#.mlp.fc1.*", "layers.#.mlp.dense_h_to_4h.*");
  add("blocks.#.mlp.fc2.*", "layers.#.mlp.dense_4h_to_h.*");
  add("ln.*", "final_layernorm.*");
  return {libraries,
          own ? "" : "transformer.",
          rules,
          {"head.weight", own ? "head.weight" : "lm_head.weight"},
          /*splits_projections=*/false,
          /*tied=*/"token_embedding.weight",
          /*unneeded=*/{"layers.#.attention.rotary_emb.inv_freq"}};
}

// Files of the first years have gamma and beta for weight and bias of the norms. The head for masked tokens repeats the token embedding and
// its own bias as a layer "decoder".
Naming bert_naming(const std::vector<std::string>& libraries) {
  const bool own = libraries.front() == "torchvision";
  std::vector<NameRule> rules;
  const auto add = [&](const std::string& ours, const std::string& theirs, bool above = false) {
    rules.push_back({ours, own ? ours : theirs, /*transposed=*/false, !own && above});
  };
  const auto add_norm = [&](const std::string& ours, const std::string& theirs, bool above = false) {
    add(ours + ".weight", theirs + ".weight", above);
    add(ours + ".bias", theirs + ".bias", above);
    if (own) return;
    add(ours + ".weight", theirs + ".gamma", above);
    add(ours + ".bias", theirs + ".beta", above);
  };
  add("type_embedding.weight", "embeddings.token_type_embeddings.weight");
  add("blocks.#.attention.q_proj.*", "encoder.layer.#.attention.self.query.*");
  add("blocks.#.attention.k_proj.*", "encoder.layer.#.attention.self.key.*");
  add("blocks.#.attention.v_proj.*", "encoder.layer.#.attention.self.value.*");
  add("blocks.#.attention.proj.*", "encoder.layer.#.attention.output.dense.*");
  add_norm("blocks.#.ln_1", "encoder.layer.#.attention.output.LayerNorm");
  add("blocks.#.mlp.fc1.*", "encoder.layer.#.intermediate.dense.*");
  add("blocks.#.mlp.fc2.*", "encoder.layer.#.output.dense.*");
  add_norm("blocks.#.ln_2", "encoder.layer.#.output.LayerNorm");
  add("token_embedding.weight", "embeddings.word_embeddings.weight");
  add("position_embedding.weight", "embeddings.position_embeddings.weight");
  add_norm("ln", "embeddings.LayerNorm");
  add("mlm.fc.*", "cls.predictions.transform.dense.*", true);
  add_norm("mlm.ln", "cls.predictions.transform.LayerNorm", true);
  add("mlm.bias", "cls.predictions.bias", true);
  add("pooler.*", "pooler.dense.*");
  if (!own) {
    add("mlm.bias", "cls.predictions.decoder.bias", true);
    add("token_embedding.weight", "cls.predictions.decoder.weight", true);
  }
  return {libraries, own ? "" : "bert.", rules, {"classifier.*", "classifier.*"}, /*splits_projections=*/true};
}

Naming clip_naming(const std::vector<std::string>& libraries) {
  const bool own = libraries.front() == "torchvision";
  std::vector<NameRule> rules;
  const auto add = [&](const std::string& ours, const std::string& theirs) { rules.push_back({ours, own ? ours : theirs}); };
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
  return {libraries, "", rules, {}, /*splits_projections=*/true};
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"vit",
       {vit_naming("torchvision"), vit_naming("timm"), vit_naming("hf"), vit_naming("hf4"), vit_naming("deit"), vit_naming("deit4")}},
      {"resnet", {resnet_naming({"torchvision", "timm"}), resnet_naming({"hf", "hf4"})}},
      {"gpt2", {gpt2_naming({"torchvision"}), gpt2_naming({"hf", "hf4"})}},
      {"llama", {llama_naming({"torchvision"}), llama_naming({"hf", "hf4"})}},
      {"glm", {glm_naming({"torchvision"}), glm_naming({"hf", "hf4"})}},
      {"bert", {bert_naming({"torchvision"}), bert_naming({"hf", "hf4"})}},
      {"clip", {clip_naming({"torchvision"}), clip_naming({"hf", "hf4"})}},
  };
  return all;
}

std::string Naming::ours(std::string_view name) const {
  if (const auto found = match(head.theirs, name)) return fill(head.ours, *found, 0);
  if (!base.empty() && name.starts_with(base)) name.remove_prefix(base.size());
  for (const auto& rule : rules)
    if (const auto found = match(rule.theirs, name)) return fill(rule.ours, *found, 1);
  return "";
}

std::string Naming::theirs(std::string_view name) const {
  if (const auto found = match(head.ours, name)) return fill(head.theirs, *found, 0);
  for (const auto& rule : rules) {
    const auto found = match(rule.ours, name);
    const auto other = found ? fill(rule.theirs, *found, -1) : "";
    if (!other.empty()) return rule.above ? other : base + other;
  }
  return "";
}

bool Naming::transposes(std::string_view name) const {
  if (!base.empty() && name.starts_with(base)) name.remove_prefix(base.size());
  for (const auto& rule : rules)
    if (match(rule.theirs, name)) return rule.transposed;
  return false;
}

bool Naming::computes_with(std::string_view name) const {
  if (!base.empty() && name.starts_with(base)) name.remove_prefix(base.size());
  const auto is = [&](const std::string& pattern) { return !pattern.empty() && match(pattern, name).has_value(); };
  if (std::any_of(unneeded.begin(), unneeded.end(), is)) return false;
  const auto tells = [&](const NameRule& rule) { return (rule.part && is(rule.theirs)) || is(block_of(rule.theirs)); };
  return std::any_of(rules.begin(), rules.end(), tells) || std::any_of(foreign.begin(), foreign.end(), is);
}

size_t Naming::matches(const std::vector<std::string>& names) const {
  const auto matched = [&](const NameRule& rule, std::string_view name) {
    if (!base.empty() && name.starts_with(base)) name.remove_prefix(base.size());
    return match(rule.theirs, name).has_value();
  };
  bool first = false, second = false;
  size_t count = 0;
  for (const auto& name : names) {
    first = first || matched(rules[0], name);
    second = second || matched(rules[1], name);
    count += ours(name).empty() ? 0 : 1;
  }
  return first && second ? count : 0;
}

KnownNaming known_naming(const std::vector<std::string>& names) {
  KnownNaming best;
  size_t most = 0;
  for (const auto& family : families())
    for (const auto& naming : family.namings)
      if (const auto count = naming.matches(names); count > most) best = {&family, &naming}, most = count;
  return best;
}

}  // namespace npu_train::detail
