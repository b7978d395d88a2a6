#include "models/families.hpp"
#include "models/llama/llama_hub.hpp"
#include "npu_train/models/llama.hpp"

namespace npu_train::detail {
namespace {

Naming llama_naming() {
  return {{"hf", "hf4"},
          "model.",
          {{"token_embedding.weight", "embed_tokens.weight"},
           {"blocks.#.norm_1.weight", "layers.#.input_layernorm.weight"},
           {"blocks.#.attention.q_proj.*", "layers.#.self_attn.q_proj.*"},
           {"blocks.#.attention.k_proj.*", "layers.#.self_attn.k_proj.*"},
           {"blocks.#.attention.v_proj.*", "layers.#.self_attn.v_proj.*"},
           {"blocks.#.attention.proj.weight", "layers.#.self_attn.o_proj.weight"},
           {"blocks.#.norm_2.weight", "layers.#.post_attention_layernorm.weight"},
           {"blocks.#.mlp.gate.weight", "layers.#.mlp.gate_proj.weight"},
           {"blocks.#.mlp.up.weight", "layers.#.mlp.up_proj.weight"},
           {"blocks.#.mlp.down.weight", "layers.#.mlp.down_proj.weight"},
           {"norm.weight", "norm.weight"}},
          {"head.weight", "lm_head.weight"},
          /*splits_projections=*/true,
          /*tied=*/"token_embedding.weight",
          /*unneeded=*/{"layers.#.self_attn.rotary_emb.inv_freq"},
          /*foreign=*/{"lm_head.bias", "norm.bias"}};
}

ConfigurationKeys llama_keys(const WeightShapes& shapes) {
  ConfigurationKeys out;
  add(out, "vocab_size", shapes.size("token_embedding.weight", 0));
  add(out, "layers", shapes.layers("blocks.", ".norm_1.weight"));
  add(out, "dim", shapes.size("token_embedding.weight", 1));
  add(out, "hidden", shapes.size("blocks.0.mlp.gate.weight", 0));
  out.emplace_back("model.tie_embeddings", shapes.tied_head());
  if (shapes.size("blocks.0.attention.q_proj.bias", 0) > 0) out.emplace_back("model.qkv_bias", "true");
  return out;
}

void add_llama(ModelRegistry& registry) {
  add_network(registry, llama, "llama", "Llama of configurable size");
  add_network(registry, llama, "llama_tiny", "Llama for bytes: vocab_size 256, context 64, layers 2, heads 4, kv_heads 2, dim 64",
              llama_tiny_options());
}

}  // namespace

ModelFamily llama_family() {
  return {.name = "llama",
          .add = add_llama,
          .hub_types = {{"llama", read_llama}, {"mistral", read_mistral}},
          .namings = {own_naming(llama_naming()), llama_naming()},
          .keys_of = llama_keys,
          .decoder = true};
}

}  // namespace npu_train::detail
