/// Vision transformers (Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021): pre-norm blocks, class token, learned positions.
/// Parameter names and shapes are torchvision's: class_token, conv_proj, encoder.pos_embedding, encoder.layers.encoder_layer_0.{ln_1,
/// self_attention.in_proj_weight, self_attention.out_proj, ln_2, mlp.0, mlp.3}, encoder.ln, heads.head. Options of later networks add
/// layer_scale_1, layer_scale_2 and self_attention.{q_norm, k_norm} to a block, and register_tokens, distillation_token and
/// heads.distillation to the network.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct VitOptions {
  int64_t num_classes = 1000;       ///< number of outputs of the head
  int64_t image_size = 224;         ///< width and height in pixels; fixed by the position embedding
  int64_t channels = 3;             ///< channels of the input
  int64_t patch_size = 16;          ///< width and height of a patch in pixels; divides image_size
  int64_t dim = 768;                ///< width of a token; a multiple of heads
  int64_t depth = 12;               ///< number of blocks
  int64_t heads = 12;               ///< number of attention heads
  int64_t mlp_dim = 0;              ///< width inside the MLP; 0: four times dim
  double dropout = 0.0;             ///< dropout rate after the position embedding, the attention projection and both MLP layers
  double attention_dropout = 0.0;   ///< dropout rate on the attention weights
  double drop_path = 0.0;           ///< stochastic depth of the last block, per sample, rising linearly from 0 at the first
  double norm_eps = 1e-6;           ///< added to the variance in layer normalisation; 1e-12 in many files of Hugging Face
  std::string qkv = "fused";        ///< fused: one projection (in_proj_weight); split: q_proj, k_proj, v_proj, which is faster on NPUs
  std::string activation = "gelu";  ///< activation of the MLP: gelu, quick_gelu, relu, silu
  std::string gelu = "exact";       ///< exact: by erf; tanh: the tanh approximation
  /// Initial value of the scales [dim] of both branches of a block (Touvron et al., "Going deeper with Image Transformers", ICCV 2021; used
  /// in DeiT-III and DINOv2); 0: no scales.
  double layer_scale = 0.0;
  bool qk_norm = false;   ///< layer normalisation of each head's queries and keys (Dehghani et al., "Scaling Vision Transformers", 2023)
  int64_t registers = 0;  ///< number of learned tokens after the class token, without positions (Darcet et al., "Registers", ICLR 2024)
  /// none; token: a distillation token after the class token (Touvron et al., "DeiT", ICML 2021) that no head reads; heads: a second head
  /// reads it, and the logits are the mean of both heads
  std::string distillation = "none";
  std::string head_init = "trunc_normal";  ///< initial weights of the head: trunc_normal (std 0.02) | xavier_uniform; its bias is 0
  std::string attention_mask = "none";     ///< none; causal: a token attends to itself and to earlier tokens (class token first)
  std::string fused_kernels = "auto";      ///< auto: packed_linear() and attention()'s fp32 backward if faster; false: PyTorch's operators
  std::string weights{};                   ///< file with initial weights
  bool weights_strict = true;              ///< true: weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<VitOptions>& config_table();
};

/// Named sizes, for 224x224 images unless the name indicates another data set.
VitOptions vit_tiny_options();          ///< patch 16, dim 192, depth 12, heads 3
VitOptions vit_small_options();         ///< patch 16, dim 384, depth 12, heads 6
VitOptions vit_b16_options();           ///< patch 16, dim 768, depth 12, heads 12
VitOptions vit_b16_ascend_options();    ///< vit_b16 as in guides for NPUs: split projections, tanh GELU, dropout, Xavier head
VitOptions vit_b32_options();           ///< patch 32, dim 768, depth 12, heads 12
VitOptions vit_l16_options();           ///< patch 16, dim 1024, depth 24, heads 16
VitOptions vit_tiny_cifar10_options();  ///< 32x32 images, patch 4, dim 192, depth 12, heads 3, 10 classes

/// Input [N, channels, image_size, image_size]. Weights are drawn from the default generator: Xavier uniform for linear layers, truncated
/// normal for patch projection and (by default) head, N(0, 0.02^2) for positions; class token and biases are 0. For equal seeds, fused and
/// split projections have equal weights. Blocks: embed, encoder.layers.encoder_layer_0 ..., head. Error(Usage) for sizes that do not
/// divide.
Model vit(const VitOptions& options, const std::string& name = "vit");

/// Sets the mask of every attention in a model created by vit(): [tokens, tokens] or broadcastable to [N, heads, tokens, tokens], boolean
/// (true = visible) or floating-point (added to the scores). It replaces a causal mask, and is not part of the saved state. An undefined
/// tensor removes it. Error(Usage) for another model.
void set_attention_mask(const Model& model, const at::Tensor& mask);

}  // namespace npu_train
