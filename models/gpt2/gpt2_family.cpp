#include "models/families.hpp"
#include "models/hub/hub_reader.hpp"
#include "npu_train/models/gpt2.hpp"

namespace npu_train::detail {
namespace {

// Returns the naming of Hugging Face, whose blocks store the matrices of linear layers as [in, out] ("Conv1D"). A model with a head also
// stores the token embedding as lm_head.weight.
Naming gpt2_naming() {
  return {{"hf", "hf4"},
          "transformer.",
          {{"token_embedding.weight", "wte.weight"},
           {"position_embedding.weight", "wpe.weight"},
           {"blocks.#.ln_1.*", "h.#.ln_1.*"},
           {"blocks.#.attention.qkv.*", "h.#.attn.c_attn.*", /*transposed=*/true},
           {"blocks.#.attention.proj.*", "h.#.attn.c_proj.*", /*transposed=*/true},
           {"blocks.#.ln_2.*", "h.#.ln_2.*"},
           {"blocks.#.mlp.fc1.*", "h.#.mlp.c_fc.*", /*transposed=*/true},
           {"blocks.#.mlp.fc2.*", "h.#.mlp.c_proj.*", /*transposed=*/true},
           {"ln.*", "ln_f.*"}},
          {"head.weight", "lm_head.weight"},
          /*splits_projections=*/false,
          /*tied=*/"token_embedding.weight",
          /*unneeded=*/{"h.#.attn.bias", "h.#.attn.masked_bias"},
          /*foreign=*/{"lm_head.bias"}};
}

ConfigurationKeys gpt2_keys(const WeightShapes& shapes) {
  ConfigurationKeys out;
  const auto dim = shapes.size("token_embedding.weight", 1), hidden = shapes.size("blocks.0.mlp.fc1.weight", 0);
  add(out, "vocab_size", shapes.size("token_embedding.weight", 0));
  add(out, "context", shapes.size("position_embedding.weight", 0));
  add(out, "layers", shapes.layers("blocks.", ".ln_1.weight"));
  add(out, "dim", dim);
  add(out, "hidden", hidden == 4 * dim ? 0 : hidden);
  out.emplace_back("model.tie_embeddings", shapes.tied_head());
  if (hidden > 0 && shapes.size("blocks.0.mlp.fc1.bias", 0) < 0) out.emplace_back("model.bias", "false");
  return out;
}

void read_gpt2(const Json& config, HubNetwork& out) {
  out.model = "gpt2";
  HubReader file(config, out);
  const auto dim = file.size("n_embd", 768, "dim");
  file.size("vocab_size", 50257, "vocab_size");
  file.size("n_positions", 1024, "context");
  file.size("n_layer", 12, "layers");
  file.heads("n_head", 12);
  file.size("n_inner", 4 * dim, "hidden", static_cast<double>(4 * dim));
  file.activation("activation_function", "gelu_new");
  file.number("layer_norm_epsilon", 1e-5, "norm_eps");
  file.flag("tie_word_embeddings", true, "tie_embeddings");
  file.must_be("scale_attn_weights", true);
  file.must_be("scale_attn_by_inverse_layer_idx", false);
  file.architectures({"GPT2LMHeadModel", "GPT2Model", "GPT2DoubleHeadsModel"});
  // Ignores reorder_and_upcast_attn, which affects only rounding.
  file.unused({"attn_pdrop", "embd_pdrop", "is_decoder", "n_ctx", "n_special", "predict_special_tokens", "reorder_and_upcast_attn",
               "resid_pdrop", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
               "transformers.js_config"});
  file.finish();
}

void add_gpt2(ModelRegistry& registry) {
  add_network(registry, gpt2, "gpt2", "GPT-2 of configurable size");
  add_network(registry, gpt2, "gpt2_124m", "GPT-2 with 124 million parameters: layers 12, heads 12, dim 768", gpt2_124m_options());
  add_network(registry, gpt2, "gpt2_tiny", "GPT-2 for bytes: vocab_size 256, context 64, layers 2, heads 2, dim 64", gpt2_tiny_options());
}

}  // namespace

ModelFamily gpt2_family() {
  return {.name = "gpt2",
          .add = add_gpt2,
          .hub_types = {{"gpt2", read_gpt2}},
          .namings = {own_naming(gpt2_naming()), gpt2_naming()},
          .keys_of = gpt2_keys,
          .decoder = true};
}

}  // namespace npu_train::detail
