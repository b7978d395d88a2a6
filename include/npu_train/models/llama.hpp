/// Llama (Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023; "Llama 2", 2023): a decoder of pre-norm blocks with
/// RMSNorm, rotary positions, grouped queries and SwiGLU. Parameters: token_embedding, blocks.0.{norm_1, attention.{q_proj,
/// k_proj, v_proj, proj}, norm_2, mlp.{gate, up, down}}, norm, head (unless it is tied). Loads weights of Hugging Face's LlamaForCausalLM
/// and MistralForCausalLM (models/weights.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Section `rope_scaling`: rotary frequencies for texts longer than those of the pretraining.
struct RopeScaling {
  /// none; linear: divides all frequencies by `factor`; llama3: divides low frequencies, as in Llama 3.1; yarn: see Peng et al., "YaRN:
  /// Efficient Context Window Extension of Large Language Models", ICLR 2024
  std::string type = "none";
  double factor = 8;                ///< scaling factor; more than 0
  double low_freq_factor = 1;       ///< llama3: wavelengths above original_context / low_freq_factor are scaled by `factor`
  double high_freq_factor = 4;      ///< llama3: wavelengths below original_context / high_freq_factor are kept; in between, interpolated
  int64_t original_context = 8192;  ///< largest number of tokens in the pretraining
  double beta_fast = 32;            ///< yarn: frequencies with more rotations in the original context are kept
  double beta_slow = 1;             ///< yarn: frequencies with fewer rotations are divided by `factor`; in between, interpolated
  double attention_factor = 0;      ///< yarn: factor on rotated queries and keys; 0: 0.1 ln(factor) + 1
  static const ConfigTable<RopeScaling>& config_table();
};

struct LlamaOptions {
  int64_t vocab_size = 32000;          ///< number of distinct tokens
  int64_t context = 1024;              ///< largest number of tokens of an input
  int64_t layers = 12;                 ///< number of blocks
  int64_t heads = 12;                  ///< number of attention heads of queries
  int64_t kv_heads = 0;                ///< number of attention heads of keys and values; divides heads; 0: same as heads
  int64_t dim = 768;                   ///< width of a token; a multiple of 2 * heads
  int64_t hidden = 0;                  ///< width of the MLP; 0: 8/3 of dim, rounded up to a multiple of 256
  double rope_theta = 10000;           ///< base of the rotary frequencies
  RopeScaling rope_scaling{};          ///< scaling for longer texts
  int64_t sliding_window = 0;          ///< number of tokens that a token attends to, itself included, as in Mistral; 0: all earlier ones
  std::string activation = "silu";     ///< activation of the gate: gelu, gelu_tanh, quick_gelu, relu, silu
  double norm_eps = 1e-5;              ///< added to the mean square in the norms
  bool tie_embeddings = false;         ///< true: the head shares the token embedding
  bool qkv_bias = false;               ///< true: the projections of queries, keys and values have biases, as in Qwen2
  std::string fused_kernels = "auto";  ///< auto: packed_linear() and attention()'s fp32 backward if faster; false: PyTorch's operators
  std::string weights{};               ///< file with initial weights
  bool weights_strict = true;          ///< true: weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<LlamaOptions>& config_table();
};

LlamaOptions llama_tiny_options();  ///< bytes as tokens: vocab_size 256, context 64, layers 2, heads 4, kv_heads 2, dim 64, hidden 176

/// Input: token ids int64 [batch, tokens], 1 to `context` tokens. Output: logits [batch, tokens, vocab_size] of the next token. Weights are
/// drawn from the default generator: N(0, 0.02^2); norms are 1. Blocks: embed, blocks.0 ..., head. Error(Usage) for sizes that do not
/// divide; on a CPU Error(Data) for an id outside of the vocabulary.
Model llama(const LlamaOptions& options, const std::string& name = "llama");

}  // namespace npu_train
