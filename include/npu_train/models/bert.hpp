/// BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL 2019): an encoder of
/// post-norm blocks with learned positions and token types. Its head predicts masked tokens, or the class of a text. Parameters:
/// token_embedding, position_embedding, type_embedding, ln, blocks.0.{attention.q_proj, .k_proj, .v_proj, .proj, ln_1, mlp.fc1, mlp.fc2,
/// ln_2}, and mlm.{fc, ln, bias} or pooler and classifier. Loads weights of Hugging Face's BertForMaskedLM and
/// BertForSequenceClassification (models/weights.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct BertOptions {
  int64_t vocab_size = 30522;       ///< number of distinct tokens
  int64_t context = 512;            ///< largest number of tokens of an input; fixed by the position embedding
  int64_t layers = 12;              ///< number of blocks
  int64_t heads = 12;               ///< number of attention heads
  int64_t dim = 768;                ///< width of a token; a multiple of heads
  int64_t hidden = 0;               ///< width of the MLP; 0: four times dim
  std::string activation = "gelu";  ///< activation of the MLPs and of the head for masked tokens: gelu, gelu_tanh, quick_gelu, relu, silu
  double norm_eps = 1e-12;          ///< added to the variance in the norms
  int64_t token_types = 2;          ///< number of token types: first and second text of a pair
  int64_t num_classes = 0;          ///< number of classes of a text; 0: the head predicts masked tokens
  double dropout = 0.1;   ///< rate after the embeddings, on the attention weights, after both branches of a block and before the classifier
  std::string weights{};  ///< file with initial weights
  bool weights_strict = true;  ///< true: weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<BertOptions>& config_table();
};

BertOptions bert_base_options();  ///< the defaults: 109,514,298 parameters with the head for masked tokens
BertOptions bert_tiny_options();  ///< bytes as tokens: vocab_size 258, context 64, layers 2, heads 2, dim 64, no dropout

/// Inputs: "input", token ids int64 [batch, tokens] of 1 to `context` tokens; "attention_mask", int64 [batch, tokens], 0 for padding, to
/// which no token attends (default: no padding); "token_types", int64 [batch, tokens] (default: all 0). Output: logits [batch, tokens,
/// vocab_size] of the token at each position, computed with the token embedding and a bias; with num_classes, logits [batch, num_classes]
/// from the first token. Weights are drawn from the default generator: N(0, 0.02^2); biases are 0; norms have scale 1 and shift 0. Blocks:
/// embed, blocks.0 ..., head. Error(Usage) for sizes that do not divide; on a CPU Error(Data) for an id or a type that is out of range.
Model bert(const BertOptions& options, const std::string& name = "bert");

}  // namespace npu_train
