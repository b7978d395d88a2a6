/// GLM in the form of GLM-6B (Du et al., "GLM: General Language Model Pretraining with Autoregressive Blank Infilling", ACL 2022; the code
/// of ChatGLM-6B): a decoder whose tokens before `bos_token` attend to each other in both directions, with two-dimensional positions.
/// Parameters: token_embedding, blocks.0.{ln_1, attention.query_key_value, attention.proj, ln_2, mlp.fc1, mlp.fc2}, ln, head (unless it is
/// tied). Loads weights of Hugging Face's ChatGLMForConditionalGeneration (models/weights.hpp).
///
/// A sequence is a prefix, in which a mask token marks the gap, then `bos_token` and the text for the gap: 5 17 8 [gMASK] bos 23 9. A token
/// of the prefix attends to the prefix; later tokens attend to the prefix, to themselves and to the tokens in between. Each token has two
/// positions, which rotate the first and the second half of a head's vector:
///
///   first    0 1 2 3 3 3 3     index in the prefix; from bos_token on the index of the gap
///   second   0 0 0 0 1 2 3     0 in the prefix; from bos_token on 1, 2, ...
///
/// The gap is the first gmask_token of the prefix, otherwise the first mask_token, otherwise the prefix's last token. A sequence without
/// bos_token has no prefix: each token attends to itself and to earlier ones, and its first position is its index.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct GlmOptions {
  int64_t vocab_size = 130528;   ///< number of distinct tokens
  int64_t context = 2048;        ///< largest number of tokens of an input
  int64_t layers = 28;           ///< number of blocks
  int64_t heads = 32;            ///< number of attention heads
  int64_t dim = 4096;            ///< width of a token; a multiple of 4 * heads
  int64_t hidden = 0;            ///< width of the MLP; 0: 4 * dim
  double norm_eps = 1e-5;        ///< added to the variance in the norms
  int64_t bos_token = 130004;    ///< token that ends the prefix; below vocab_size
  int64_t gmask_token = 130001;  ///< token that marks a gap at the end of the prefix ("[gMASK]")
  int64_t mask_token = 130000;   ///< token that marks a gap in the prefix ("[MASK]")
  /// The head shares the token embedding, as in transformers' ChatGLM-6B, whose files contain the matrix under both names.
  bool tie_embeddings = true;
  std::string weights{};       ///< file with initial weights
  bool weights_strict = true;  ///< true: weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<GlmOptions>& config_table();
};

GlmOptions glm_6b_options();  ///< the defaults: 6,173,286,400 parameters
/// Sizes for bytes as tokens: vocab_size 256, context 64, layers 2, heads 2, dim 64. bos_token 255, gmask_token 254 and mask_token 253 are
/// bytes that never occur in UTF-8 text.
GlmOptions glm_tiny_options();

/// Input: token ids int64 [batch, tokens], 1 to `context` tokens. Output: logits [batch, tokens, vocab_size] of the next token. Weights are
/// drawn from the default generator: N(0, 0.02^2) for the embedding and the head, N(0, 1 / inputs) in the blocks; biases are 0; norms have
/// scale 1 and shift 0. Blocks: embed, blocks.0 ..., head. start_sequence() accepts pieces of any length. A piece with the first bos_token
/// recomputes all tokens, because the earlier ones then attend to each other. Error(Usage) for sizes that do not divide; Error(OutOfMemory)
/// if the parameters in fp32 need more memory than this host has free; on a CPU Error(Data) for an id outside of the vocabulary.
Model glm(const GlmOptions& options, const std::string& name = "glm");

}  // namespace npu_train
