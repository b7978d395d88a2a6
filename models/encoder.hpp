// The parts of transformers that see a complete sequence: attention with one projection each for queries, keys and values, and an MLP. With
// `causal` they are those of CLIP's text tower too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "npu_train/nn/layers.hpp"

namespace npu_train::detail {

struct SelfAttentionOptions {
  int64_t dim = 0;           // width of a token
  int64_t heads = 0;         // divides dim
  double dropout = 0;        // on the attention weights
  bool causal = false;       // a token attends to itself and to earlier tokens
  double std = 0;            // of the initial weights of queries, keys and values
  double residual_std = -1;  // of those of the last projection; below 0: std
};

// Parameters, each with a bias: q_proj, k_proj, v_proj, proj, all [dim, dim].
class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const SelfAttentionOptions& options);

  // [N, tokens, dim] -> [N, tokens, dim]. `keys`, bool [N, 1, 1, tokens], is true for the tokens that may be attended to; undefined: all.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& keys = {}) const;

 private:
  int64_t heads_;
  double dropout_;
  bool causal_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, proj_;
};

enum class Activation {
  Gelu,       // x Phi(x), by erf
  QuickGelu,  // x sigmoid(1.702 x)
};

// fc2(activation(fc1(x))). Parameters: fc1 [hidden, dim], fc2 [dim, hidden], with biases.
class Mlp : public torch::nn::Module {
 public:
  Mlp(int64_t dim, int64_t hidden, Activation activation, double std, double residual_std);

  at::Tensor forward(const at::Tensor& x) const;

 private:
  Activation activation_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

}  // namespace npu_train::detail
