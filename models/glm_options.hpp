// The fields of GlmOptions, for it and for the presets that derive from it.
#pragma once

#include "npu_train/models/glm.hpp"

namespace npu_train::detail {

template <class T>
ConfigTable<T> glm_fields(const std::string& title) {
  ConfigTable<T> table(title);
  using text = std::string;
  const auto token = between(0, (1 << 24) - 1);
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table.template field<int64_t>("vocab_size", &GlmOptions::vocab_size, "number of different tokens", between(1, 1 << 24))
      .template field<int64_t>("context", &GlmOptions::context, "tokens of the longest input", between(1, 1 << 20))
      .template field<int64_t>("layers", &GlmOptions::layers, "blocks", between(1, 4096))
      .template field<int64_t>("heads", &GlmOptions::heads, "number of attention heads", between(1, 4096))
      .template field<int64_t>("dim", &GlmOptions::dim, "width of a token; must be a multiple of 4 * heads", between(1, 1 << 16))
      .template field<int64_t>("hidden", &GlmOptions::hidden, "width of the MLP; 0: 4 * dim", between(0, 1 << 20))
      .template field<double>("norm_eps", &GlmOptions::norm_eps, "added to the variance in the norms", between(0, 1))
      .template field<int64_t>("bos_token", &GlmOptions::bos_token, "token that ends the prefix; below vocab_size", token)
      .template field<int64_t>("gmask_token", &GlmOptions::gmask_token, "token that marks a gap at the end of the prefix", token)
      .template field<int64_t>("mask_token", &GlmOptions::mask_token, "token that marks a gap in the prefix", token)
      .template field<bool>("tie_embeddings", &GlmOptions::tie_embeddings, "the head uses the token embedding")
      .template field<text>("weights", &GlmOptions::weights, "file with initial weights: safetensors, .pth or a checkpoint")
      .template field<bool>("weights_strict", &GlmOptions::weights_strict,
                            "true: weights of another network are an error; false: the matching tensors are loaded");
  table.synonym("pretrained", "weights").synonym("max_sequence_length", "context").synonym("max_seq_len", "context");
  table.synonym("num_layers", "layers").synonym("n_layers", "layers").synonym("num_attention_heads", "heads");
  table.synonym("num_heads", "heads").synonym("n_heads", "heads").synonym("hidden_size", "dim").synonym("embed_dim", "dim");
  table.synonym("inner_hidden_size", "hidden").synonym("hidden_dim", "hidden").synonym("layernorm_epsilon", "norm_eps");
  table.synonym("bos_token_id", "bos_token").synonym("gmask_token_id", "gmask_token").synonym("mask_token_id", "mask_token");
  table.synonym("tie_word_embeddings", "tie_embeddings");
  return table;
}

}  // namespace npu_train::detail
