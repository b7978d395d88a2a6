#include "models/blocks/encoder.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <optional>

#include "models/blocks/decoder.hpp"
#include "models/blocks/layer_norm.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/layers.hpp"

namespace npu_train::detail {

SelfAttention::SelfAttention(const SelfAttentionOptions& o)
    : torch::nn::Module("SelfAttention"), heads_(o.heads), dropout_(o.dropout), causal_(o.causal), fused_(o.fused_kernels) {
  q_proj_ = normal_linear(*this, "q_proj", o.dim, o.dim, o.std, /*bias=*/true, fused_);
  k_proj_ = normal_linear(*this, "k_proj", o.dim, o.dim, o.std, /*bias=*/true, fused_);
  v_proj_ = normal_linear(*this, "v_proj", o.dim, o.dim, o.std, /*bias=*/true, fused_);
  proj_ = normal_linear(*this, "proj", o.dim, o.dim, o.residual_std < 0 ? o.std : o.residual_std, /*bias=*/true, fused_);
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& keys) const {
  const int64_t n = x.size(0), tokens = x.size(1), dim = x.size(2);
  const auto heads = [&](const Linear& projection) {
    return projection.forward(x).view({n, tokens, heads_, dim / heads_}).transpose(1, 2);
  };
  const auto mask = keys.defined() ? std::optional(keys) : std::nullopt;
  const at::Tensor y =
      npu_train::attention(heads(*q_proj_), heads(*k_proj_), heads(*v_proj_), mask, is_training() ? dropout_ : 0.0, causal_, fused_);
  return proj_->forward(y.transpose(1, 2).reshape({n, tokens, dim}));
}

Mlp::Mlp(int64_t dim, int64_t hidden, Activation activation, double std, double residual_std, bool packed)
    : torch::nn::Module("Mlp"), activation_(activation) {
  fc1_ = normal_linear(*this, "fc1", dim, hidden, std, /*bias=*/true, packed);
  fc2_ = normal_linear(*this, "fc2", hidden, dim, residual_std, /*bias=*/true, packed);
}

at::Tensor Mlp::forward(const at::Tensor& x) const { return fc2_->forward(activated(fc1_->forward(x), activation_)); }

PreNormBlock::PreNormBlock(const PreNormOptions& o) : torch::nn::Module("PreNormBlock") {
  const int64_t dim = o.attention.dim;
  ln_1_ = add_layer_norm(*this, "ln_1", dim, o.norm_eps);
  attention_ = register_module("attention", std::make_shared<SelfAttention>(o.attention));
  ln_2_ = add_layer_norm(*this, "ln_2", dim, o.norm_eps);
  mlp_ =
      register_module("mlp", std::make_shared<Mlp>(dim, o.hidden, o.activation, o.mlp_std, o.mlp_residual_std, o.attention.fused_kernels));
  if (o.layer_scale <= 0) return;
  scale_1_ = register_parameter("scale_1", at::full({dim}, o.layer_scale));
  scale_2_ = register_parameter("scale_2", at::full({dim}, o.layer_scale));
}

at::Tensor PreNormBlock::forward(const at::Tensor& x) const {
  const auto attend = [this](const at::Tensor& t) { return attention_->forward(t); };
  const auto scaled = [](const at::Tensor& branch, const at::Tensor& scale) {
    return scale.defined() ? branch * scale.to(branch.scalar_type()) : branch;
  };
  const at::Tensor y = x + scaled(in_layer("attention", layer_norm(x, *ln_1_), attend), scale_1_);
  return y + scaled(mlp_->forward(layer_norm(y, *ln_2_)), scale_2_);
}

ImageTokens::ImageTokens(torch::nn::Module& owner, const ImageTokensOptions& o) : network_(o.network), size_(o.image_size) {
  const int64_t side = o.image_size / o.patch_size;
  class_embedding_ = owner.register_parameter("class_embedding", at::empty({o.dim}));
  init::normal_(class_embedding_, o.class_std);
  patch_ = owner.register_module("patch", std::make_shared<Conv2d>(Conv2d::Options{
                                              .in = 3, .out = o.dim, .kernel = o.patch_size, .stride = o.patch_size, .bias = o.bias}));
  init::normal_(patch_->weight, o.patch_std);
  if (o.bias) init::zeros_(patch_->bias);
  const auto positions = std::make_shared<Embedding>(side * side + 1, o.dim, o.position_std);
  positions_ = owner.register_module("position_embedding", positions)->weight;
}

at::Tensor ImageTokens::operator()(const at::Tensor& x) const {
  check(x.dim() == 4 && x.size(1) == 3 && x.size(2) == size_ && x.size(3) == size_, ErrorKind::Usage, network_, "images of shape ",
        x.sizes(), "; this network requires [N, 3, ", size_, ", ", size_, "]: set image_size, or resize the images");
  const at::Tensor patches = patch_->forward(x).flatten(2).transpose(1, 2);
  const at::Tensor first = class_embedding_.to(patches.scalar_type()).expand({x.size(0), 1, -1});
  return at::cat({first, patches}, 1) + positions_;
}

}  // namespace npu_train::detail
