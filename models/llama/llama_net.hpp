// The network of Llama, which is also InternVL's language model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/blocks/decoder.hpp"
#include "npu_train/models/llama.hpp"

namespace npu_train::detail {

inline std::vector<std::string> rope_types() { return {"none", "linear", "llama3", "yarn"}; }

class LlamaBlock : public torch::nn::Module {
 public:
  explicit LlamaBlock(const LlamaOptions& options);

  // Maps [N, tokens, dim] to [N, tokens, dim]. With a cache, x follows the cached tokens and is appended to them.
  at::Tensor forward(const at::Tensor& x, const Rotary& rotary, KeyValueCache* cache = nullptr, const TokenPlaces& places = {}) const;

 private:
  std::shared_ptr<RmsNorm> norm_1_, norm_2_;
  std::shared_ptr<GroupedQueryAttention> attention_;
  std::shared_ptr<SwiGlu> mlp_;
};

class Llama : public torch::nn::Module {
 public:
  // `network` is the name with which error messages begin.
  explicit Llama(const LlamaOptions& options, const char* network = "llama");

  // Maps tokens [N, T] after `before` earlier ones to vectors [N, T, dim].
  at::Tensor embed(const at::Tensor& tokens, int64_t before = 0, const TokenPlaces& places = {});
  at::Tensor block(size_t i, const at::Tensor& x, KeyValueCache* cache = nullptr, const TokenPlaces& places = {});
  // Compute embed() and block() for a batch, which may have packed documents.
  at::Tensor embed(const ForwardContext& context, const at::Tensor& tokens);
  at::Tensor block(const ForwardContext& context, size_t i, const at::Tensor& x);
  // Maps vectors to logits [N, T, vocab_size].
  at::Tensor head(const at::Tensor& x);
  int64_t context() const { return context_; }  // tokens of the longest sequence
  // Returns the places of `count` tokens after `before` others, in rows whose first `padding` [N] tokens are padding.
  TokenPlaces padded(const at::Tensor& padding, int64_t before, int64_t count) const;

  std::vector<std::shared_ptr<LlamaBlock>> blocks;

 private:
  // Returns the places of packed documents. The first block of a pass looks up the rotations for all blocks.
  TokenPlaces packed(const ForwardContext& context) const;

  const char* network_;
  Rotary rotary_;
  int64_t vocab_size_, context_, window_;
  bool fused_;
  std::shared_ptr<Embedding> token_embedding_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Linear> head_;
};

// Throws Error(Usage) for invalid options, such as a dim that is not a multiple of 2 * heads.
void check_llama_options(const LlamaOptions& options, const char* network);

}  // namespace npu_train::detail
