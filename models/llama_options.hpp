// The fields of LlamaOptions, for it and for the presets that derive from it.
#pragma once

#include "activation.hpp"
#include "npu_train/models/llama.hpp"

namespace npu_train::detail {

inline std::vector<std::string> rope_types() { return {"none", "linear", "llama3", "yarn"}; }

template <class T>
ConfigTable<T> llama_fields(ConfigTable<T> table) {
  using text = std::string;
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table.template field<int64_t>("vocab_size", &LlamaOptions::vocab_size, "number of different tokens", between(1, 1 << 24))
      .template field<int64_t>("context", &LlamaOptions::context, "tokens of the longest input", between(1, 1 << 20))
      .template field<int64_t>("layers", &LlamaOptions::layers, "blocks", between(1, 4096))
      .template field<int64_t>("heads", &LlamaOptions::heads, "number of attention heads of queries", between(1, 4096))
      .template field<int64_t>("kv_heads", &LlamaOptions::kv_heads, "number of attention heads of keys and values, divides heads; 0: heads",
                               between(0, 4096))
      .template field<int64_t>("dim", &LlamaOptions::dim, "width of a token; must be a multiple of 2 * heads", between(1, 1 << 16))
      .template field<int64_t>("hidden", &LlamaOptions::hidden, "width of the MLP; 0: 8/3 of dim, rounded up to a multiple of 256",
                               between(0, 1 << 20))
      .template field<double>("rope_theta", &LlamaOptions::rope_theta, "base of the rotary frequencies", between(1, 1e9))
      .template field<RopeScaling>("rope_scaling", &LlamaOptions::rope_scaling, "rotary frequencies for longer texts")
      .template field<int64_t>("sliding_window", &LlamaOptions::sliding_window,
                               "a token sees this many tokens, itself included, as in Mistral; 0: all earlier ones", between(0, 1 << 24))
      .template field<text>("activation", &LlamaOptions::activation, "of the gate", one_of(activation_names()))
      .template field<double>("norm_eps", &LlamaOptions::norm_eps, "added to the mean square in the norms", between(0, 1))
      .template field<bool>("tie_embeddings", &LlamaOptions::tie_embeddings, "the head uses the token embedding")
      .template field<text>("fused_kernels", &LlamaOptions::fused_kernels,
                            "auto: products with weights prepacked for oneDNN, and attention's bf16 backward in fp32, if that is faster; "
                            "false: PyTorch's operators",
                            one_of({"auto", "false"}))
      .template field<text>("weights", &LlamaOptions::weights, "file with initial weights: safetensors, .pth or a checkpoint")
      .template field<bool>("weights_strict", &LlamaOptions::weights_strict,
                            "true: weights of another network are an error; false: the matching tensors are loaded");
  table.synonym("pretrained", "weights").synonym("max_position_embeddings", "context").synonym("max_seq_len", "context");
  table.synonym("n_layers", "layers").synonym("num_hidden_layers", "layers").synonym("num_layers", "layers");
  table.synonym("n_heads", "heads").synonym("num_attention_heads", "heads").synonym("num_heads", "heads");
  table.synonym("n_kv_heads", "kv_heads").synonym("num_key_value_heads", "kv_heads").synonym("hidden_size", "dim");
  table.synonym("embed_dim", "dim").synonym("hidden_dim", "hidden").synonym("intermediate_size", "hidden");
  table.synonym("rms_norm_eps", "norm_eps").synonym("tie_word_embeddings", "tie_embeddings");
  return table;
}

template <class T>
ConfigTable<T> llama_fields(const std::string& title) {
  return llama_fields(ConfigTable<T>(title));
}

}  // namespace npu_train::detail
