// The fields of BertOptions, for it and for the presets that derive from it.
#pragma once

#include "activation.hpp"
#include "npu_train/models/bert.hpp"

namespace npu_train::detail {

template <class T>
ConfigTable<T> bert_fields(const std::string& title) {
  ConfigTable<T> table(title);
  using text = std::string;
  // Type arguments are spelled out: a member of the base is not deduced as one of T.
  table.template field<int64_t>("vocab_size", &BertOptions::vocab_size, "number of different tokens", between(1, 1 << 24))
      .template field<int64_t>("context", &BertOptions::context, "tokens of the longest input", between(1, 1 << 20))
      .template field<int64_t>("layers", &BertOptions::layers, "blocks", between(1, 4096))
      .template field<int64_t>("heads", &BertOptions::heads, "number of attention heads", between(1, 4096))
      .template field<int64_t>("dim", &BertOptions::dim, "width of a token; must be a multiple of heads", between(1, 1 << 16))
      .template field<int64_t>("hidden", &BertOptions::hidden, "width of the MLP; 0: four times dim", between(0, 1 << 20))
      .template field<text>("activation", &BertOptions::activation, "of the MLPs and of the head for masked tokens",
                            one_of(activation_names()))
      .template field<double>("norm_eps", &BertOptions::norm_eps, "added to the variance in the norms", between(0, 1))
      .template field<int64_t>("token_types", &BertOptions::token_types, "number of different types of tokens", between(1, 1 << 16))
      .template field<int64_t>("num_classes", &BertOptions::num_classes, "classes of a text; 0: the head predicts masked tokens",
                               between(0, 1 << 24))
      .template field<double>("dropout", &BertOptions::dropout,
                              "rate after the embeddings, on the attention weights, after both branches and before the classifier",
                              between(0, 0.99))
      .template field<text>("weights", &BertOptions::weights, "file with initial weights: safetensors, .pth or a checkpoint")
      .template field<bool>("weights_strict", &BertOptions::weights_strict,
                            "true: weights of another network are an error; false: the matching tensors are loaded");
  table.synonym("pretrained", "weights").synonym("max_position_embeddings", "context").synonym("max_seq_len", "context");
  table.synonym("num_hidden_layers", "layers").synonym("num_layers", "layers").synonym("num_attention_heads", "heads");
  table.synonym("num_heads", "heads").synonym("hidden_size", "dim").synonym("embed_dim", "dim").synonym("intermediate_size", "hidden");
  table.synonym("type_vocab_size", "token_types").synonym("num_labels", "num_classes").synonym("hidden_dropout_prob", "dropout");
  table.synonym("hidden_act", "activation").synonym("layer_norm_eps", "norm_eps");
  return table;
}

}  // namespace npu_train::detail
