// The fields of Gpt2Options, for it and for the presets that derive from it.
#pragma once

#include "activation.hpp"
#include "npu_train/models/gpt2.hpp"

namespace npu_train::detail {

template <class T>
ConfigTable<T> gpt2_fields(const std::string& title) {
  ConfigTable<T> table(title);
  using text = std::string;
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table.template field<int64_t>("vocab_size", &Gpt2Options::vocab_size, "number of different tokens", between(1, 1 << 24))
      .template field<int64_t>("context", &Gpt2Options::context, "tokens of the longest input", between(1, 1 << 20))
      .template field<int64_t>("layers", &Gpt2Options::layers, "blocks", between(1, 4096))
      .template field<int64_t>("heads", &Gpt2Options::heads, "number of attention heads", between(1, 4096))
      .template field<int64_t>("dim", &Gpt2Options::dim, "width of a token; must be a multiple of heads", between(1, 1 << 16))
      .template field<int64_t>("hidden", &Gpt2Options::hidden, "width of the MLP; 0: four times dim", between(0, 1 << 20))
      .template field<text>("activation", &Gpt2Options::activation, "of the MLP", one_of(activation_names()))
      .template field<double>("norm_eps", &Gpt2Options::norm_eps, "added to the variance in the norms", between(0, 1))
      .template field<bool>("tie_embeddings", &Gpt2Options::tie_embeddings, "the head uses the token embedding")
      .template field<bool>("bias", &Gpt2Options::bias, "biases in the linear layers and in the norms")
      .template field<double>("dropout", &Gpt2Options::dropout,
                              "rate after the embeddings, on the attention weights and after both branches", between(0, 0.99))
      .template field<text>("weights", &Gpt2Options::weights, "file with initial weights: safetensors, .pth or a checkpoint")
      .template field<bool>("weights_strict", &Gpt2Options::weights_strict,
                            "true: weights of another network are an error; false: the matching tensors are loaded");
  table.synonym("pretrained", "weights").synonym("block_size", "context").synonym("n_positions", "context").synonym("n_ctx", "context");
  table.synonym("n_layer", "layers").synonym("num_layers", "layers").synonym("n_head", "heads").synonym("num_heads", "heads");
  table.synonym("n_embd", "dim").synonym("embed_dim", "dim").synonym("hidden_dim", "dim");
  table.synonym("n_inner", "hidden").synonym("activation_function", "activation").synonym("layer_norm_epsilon", "norm_eps");
  table.synonym("tie_word_embeddings", "tie_embeddings");
  return table;
}

}  // namespace npu_train::detail
