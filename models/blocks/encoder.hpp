// Parts of transformers that process a complete sequence: attention with separate projections for queries, keys and values, an MLP, a
// pre-norm block of both, and the tokens of an image. With `causal` the block also serves CLIP's text tower.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <memory>
#include <string>

#include "models/blocks/activation.hpp"
#include "npu_train/nn/layers.hpp"

namespace npu_train::detail {

struct SelfAttentionOptions {
  int64_t dim = 0;           // width of a token
  int64_t heads = 0;         // divides dim
  double dropout = 0;        // dropout rate on the attention weights
  bool causal = false;       // true: a token attends only to itself and to earlier tokens
  double std = 0;            // standard deviation of the initial weights of queries, keys and values
  double residual_std = -1;  // standard deviation of the initial weights of the last projection; below 0: std
  bool fused_kernels = true;
};

// Self-attention. Parameters, each with a bias: q_proj, k_proj, v_proj, proj, all [dim, dim].
class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const SelfAttentionOptions& options);

  // Maps [N, tokens, dim] to [N, tokens, dim]. `keys`, bool [N, 1, 1, tokens], is true for tokens to which others may attend; undefined:
  // all.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& keys = {}) const;

 private:
  int64_t heads_;
  double dropout_;
  bool causal_, fused_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, proj_;
};

// Computes fc2(activation(fc1(x))). Parameters: fc1 [hidden, dim], fc2 [dim, hidden], with biases.
class Mlp : public torch::nn::Module {
 public:
  Mlp(int64_t dim, int64_t hidden, Activation activation, double std, double residual_std, bool packed = true);

  at::Tensor forward(const at::Tensor& x) const;

 private:
  Activation activation_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

struct PreNormOptions {
  SelfAttentionOptions attention;
  int64_t hidden = 0;  // width of the MLP
  Activation activation = Activation::Gelu;
  double norm_eps = 0;
  double mlp_std = 0, mlp_residual_std = 0;  // standard deviations of the initial weights of fc1 and fc2
  double layer_scale = 0;                    // initial value of the scales of both branches; 0: no scales
};

// A pre-norm block: x + attention(norm(x)), then x + mlp(norm(x)); layer_scale multiplies each branch by a vector (Touvron et al., "Going
// deeper with Image Transformers", ICCV 2021). Parameters: ln_1, attention, ln_2, mlp, and scale_1 and scale_2 [dim].
class PreNormBlock : public torch::nn::Module {
 public:
  explicit PreNormBlock(const PreNormOptions& options);

  // Maps [N, tokens, dim] to [N, tokens, dim].
  at::Tensor forward(const at::Tensor& x) const;

 private:
  std::shared_ptr<torch::nn::LayerNormImpl> ln_1_, ln_2_;
  std::shared_ptr<SelfAttention> attention_;
  std::shared_ptr<Mlp> mlp_;
  at::Tensor scale_1_, scale_2_;
};

struct ImageTokensOptions {
  const char* network = "";  // prefix of error messages
  int64_t image_size = 0, patch_size = 0, dim = 0;
  bool bias = false;  // true: the patch projection has a bias
  double class_std = 0, patch_std = 0, position_std = 0;
};

// The first layer of a vision transformer: a class vector and one vector per patch, with positions.
class ImageTokens {
 public:
  // Registers class_embedding [dim], patch and position_embedding in `owner`.
  ImageTokens(torch::nn::Module& owner, const ImageTokensOptions& options);

  // Maps images [N, 3, image_size, image_size] to [N, 1 + patches, dim]. Error(Usage) for other shapes.
  at::Tensor operator()(const at::Tensor& images) const;

 private:
  const char* network_;
  int64_t size_;
  at::Tensor class_embedding_, positions_;
  std::shared_ptr<Conv2d> patch_;
};

}  // namespace npu_train::detail
