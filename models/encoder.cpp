#include "encoder.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/sigmoid.h>

#include <optional>

#include "decoder.hpp"
#include "npu_train/nn/attention.hpp"

namespace npu_train::detail {

SelfAttention::SelfAttention(const SelfAttentionOptions& o)
    : torch::nn::Module("SelfAttention"), heads_(o.heads), dropout_(o.dropout), causal_(o.causal) {
  q_proj_ = normal_linear(*this, "q_proj", o.dim, o.dim, o.std);
  k_proj_ = normal_linear(*this, "k_proj", o.dim, o.dim, o.std);
  v_proj_ = normal_linear(*this, "v_proj", o.dim, o.dim, o.std);
  proj_ = normal_linear(*this, "proj", o.dim, o.dim, o.residual_std < 0 ? o.std : o.residual_std);
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& keys) const {
  const int64_t n = x.size(0), tokens = x.size(1), dim = x.size(2);
  const auto heads = [&](const Linear& projection) {
    return projection.forward(x).view({n, tokens, heads_, dim / heads_}).transpose(1, 2);
  };
  const auto mask = keys.defined() ? std::optional(keys) : std::nullopt;
  const at::Tensor y =
      npu_train::attention(heads(*q_proj_), heads(*k_proj_), heads(*v_proj_), mask, is_training() ? dropout_ : 0.0, causal_);
  return proj_->forward(y.transpose(1, 2).reshape({n, tokens, dim}));
}

Mlp::Mlp(int64_t dim, int64_t hidden, Activation activation, double std, double residual_std)
    : torch::nn::Module("Mlp"), activation_(activation) {
  fc1_ = normal_linear(*this, "fc1", dim, hidden, std);
  fc2_ = normal_linear(*this, "fc2", hidden, dim, residual_std);
}

at::Tensor Mlp::forward(const at::Tensor& x) const {
  const at::Tensor h = fc1_->forward(x);
  return fc2_->forward(activation_ == Activation::Gelu ? at::gelu(h) : h * at::sigmoid(1.702 * h));
}

}  // namespace npu_train::detail
