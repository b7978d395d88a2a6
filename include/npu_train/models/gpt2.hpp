/// GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): a decoder of pre-norm blocks with learned positions
/// and a head that usually shares the token embedding. Parameters: token_embedding, position_embedding, blocks.0.{ln_1, attention.qkv,
/// attention.proj, ln_2, mlp.fc1, mlp.fc2}, ln, head (unless it is tied). Loads weights of Hugging Face's GPT2LMHeadModel
/// (models/weights.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct Gpt2Options {
  int64_t vocab_size = 50257;            ///< number of distinct tokens
  int64_t context = 1024;                ///< largest number of tokens of an input; fixed by the position embedding
  int64_t layers = 12;                   ///< number of blocks
  int64_t heads = 12;                    ///< number of attention heads
  int64_t dim = 768;                     ///< width of a token; a multiple of heads
  int64_t hidden = 0;                    ///< width of the MLP; 0: four times dim
  std::string activation = "gelu_tanh";  ///< activation of the MLP: gelu, gelu_tanh, quick_gelu, relu, silu
  double norm_eps = 1e-5;                ///< added to the variance in the norms
  bool tie_embeddings = true;            ///< true: the head shares the token embedding
  bool bias = true;                      ///< true: linear layers and norms have biases; nanoGPT trains without them by default
  double dropout = 0.0;        ///< rate after the embeddings, on the attention weights and after both branches of a block; 0.1 in the paper
  std::string weights{};       ///< file with initial weights
  bool weights_strict = true;  ///< true: weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<Gpt2Options>& config_table();
};

Gpt2Options gpt2_124m_options();  ///< the defaults: 124,439,808 parameters
Gpt2Options gpt2_tiny_options();  ///< bytes as tokens: vocab_size 256, context 64, layers 2, heads 2, dim 64

/// Input: token ids int64 [batch, tokens], 1 to `context` tokens. Output: logits [batch, tokens, vocab_size] of the next token. Weights are
/// drawn from the default generator: N(0, 0.02^2), for the last layer of each residual branch N(0, 0.02^2 / (2 layers)); biases are 0;
/// norms have scale 1 and shift 0. Blocks: embed, blocks.0 ..., head. Error(Usage) for sizes that do not divide; on a CPU Error(Data) for
/// an id outside of the vocabulary.
Model gpt2(const Gpt2Options& options, const std::string& name = "gpt2");

}  // namespace npu_train
