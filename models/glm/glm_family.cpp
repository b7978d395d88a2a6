#include <tuple>

#include "models/families.hpp"
#include "models/hub/hub_reader.hpp"
#include "npu_train/models/glm.hpp"

namespace npu_train::detail {
namespace {

// Returns the naming of Hugging Face. GLM's projection interleaves query, key and value per head, unlike GPT-2's qkv.
Naming glm_naming() {
  return {{"hf", "hf4"},
          "transformer.",
          {{"blocks.#.attention.query_key_value.*", "layers.#.attention.query_key_value.*"},
           {"token_embedding.weight", "word_embeddings.weight"},
           {"blocks.#.ln_1.*", "layers.#.input_layernorm.*"},
           {"blocks.#.attention.proj.*", "layers.#.attention.dense.*"},
           {"blocks.#.ln_2.*", "layers.#.post_attention_layernorm.*"},
           {"blocks.#.mlp.fc1.*", "layers.#.mlp.dense_h_to_4h.*"},
           {"blocks.#.mlp.fc2.*", "layers.#.mlp.dense_4h_to_h.*"},
           {"ln.*", "final_layernorm.*"}},
          {"head.weight", "lm_head.weight"},
          /*splits_projections=*/false,
          /*tied=*/"token_embedding.weight",
          /*unneeded=*/{"layers.#.attention.rotary_emb.inv_freq"}};
}

ConfigurationKeys glm_keys(const WeightShapes& shapes) {
  ConfigurationKeys out;
  add(out, "vocab_size", shapes.size("token_embedding.weight", 0));
  add(out, "layers", shapes.layers("blocks.", ".ln_1.weight"));
  add(out, "dim", shapes.size("token_embedding.weight", 1));
  add(out, "hidden", shapes.size("blocks.0.mlp.fc1.weight", 0));
  out.emplace_back("model.tie_embeddings", shapes.tied_head());
  return out;
}

void read_chatglm(const Json& config, HubNetwork& out) {
  out.model = "glm";
  HubReader file(config, out);
  const auto dim = file.size("hidden_size", 4096, "dim");
  file.size("vocab_size", 130528, "vocab_size");
  file.size("num_layers", 28, "layers");
  file.size("inner_hidden_size", 16384, "hidden", static_cast<double>(4 * dim));
  file.heads("num_attention_heads", 32);
  file.longest("max_sequence_length", 2048, "context");
  file.number("layernorm_epsilon", 1e-5, "norm_eps");
  for (const auto& [key, option, standard] :
       {std::tuple("bos_token_id", "bos_token", 130004), std::tuple("gmask_token_id", "gmask_token", 130001),
        std::tuple("mask_token_id", "mask_token", 130000)})
    file.number(key, standard, option);
  file.must_be("position_encoding_2d", true);
  file.must_be("quantization_bit", 0);
  file.must_be("pre_seq_len", Json());
  file.must_be("prefix_projection", false);
  file.architectures({"ChatGLMModel", "ChatGLMForConditionalGeneration"});
  file.unused({"auto_map", "quantization_embedding", "tie_word_embeddings", "use_cache"});
  file.finish();
}

void add_glm(ModelRegistry& registry) {
  add_network(registry, glm, "glm", "GLM of configurable size");
  add_network(registry, glm, "glm_6b", "GLM-6B: 6.2 billion parameters, layers 28, heads 32, dim 4096", glm_6b_options());
  add_network(registry, glm, "glm_tiny", "GLM for bytes: vocab_size 256, context 64, layers 2, heads 2, dim 64", glm_tiny_options());
}

}  // namespace

ModelFamily glm_family() {
  return {.name = "glm",
          .add = add_glm,
          .hub_types = {{"chatglm", read_chatglm}},
          .namings = {own_naming(glm_naming()), glm_naming()},
          .keys_of = glm_keys};
}

}  // namespace npu_train::detail
