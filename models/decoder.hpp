// The parts of decoder-only transformers: embeddings, causal self-attention, pre-norm blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <memory>

#include "npu_train/nn/layers.hpp"

namespace npu_train::detail {

// A table of vectors. Parameter: weight [rows, dim], drawn from N(0, std^2).
class Embedding : public torch::nn::Module {
 public:
  Embedding(int64_t rows, int64_t dim, double std);

  // Numbers of rows, int64 [...], to [..., dim].
  at::Tensor forward(const at::Tensor& rows) const;
  // Vectors [..., dim] to their products with all rows, [..., rows]: the head of a network whose embedding is tied (Press and Wolf, "Using
  // the Output Embedding to Improve Language Models", EACL 2017).
  at::Tensor products(const at::Tensor& x) const;

  at::Tensor weight;
};

struct DecoderOptions {
  int64_t dim = 0;          // width of a token
  int64_t heads = 0;        // divides dim
  double dropout = 0;       // on the attention weights and after both branches
  double norm_eps = 0;      // added to the variance in layer normalisation
  double std = 0;           // of the initial weights
  double residual_std = 0;  // of those of the last layer of each branch
};

// Keys and values [N, heads, tokens, dim / heads] of the tokens that an attention has seen; undefined before the first.
struct KeyValueCache {
  at::Tensor keys, values;
  int64_t tokens() const { return keys.defined() ? keys.size(2) : 0; }
};

// A token attends to itself and to earlier tokens. Parameters: qkv [3 dim, dim] (queries, keys, values), proj [dim, dim].
class CausalSelfAttention : public torch::nn::Module {
 public:
  explicit CausalSelfAttention(const DecoderOptions& options);

  // [N, tokens, dim] -> [N, tokens, dim]. With a cache x follows the tokens in it, and is added to it.
  at::Tensor forward(const at::Tensor& x, KeyValueCache* cache = nullptr) const;

 private:
  int64_t heads_;
  double dropout_;
  std::shared_ptr<Linear> qkv_, proj_;
};

// x + attention(norm(x)), then x + mlp(norm(x)), with an MLP of four times the width and GELU by tanh.
class DecoderBlock : public torch::nn::Module {
 public:
  explicit DecoderBlock(const DecoderOptions& options);

  // [N, tokens, dim] -> [N, tokens, dim]. With a cache x follows the tokens in it, and is added to it.
  at::Tensor forward(const at::Tensor& x, KeyValueCache* cache = nullptr) const;

 private:
  double dropout_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_1_, ln_2_;
  std::shared_ptr<CausalSelfAttention> attention_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

}  // namespace npu_train::detail
