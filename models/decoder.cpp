#include "decoder.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones.h>

#include "layer_norm.hpp"
#include "npu_train/nn/attention.hpp"
#include "npu_train/nn/dropout.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/packed_linear.hpp"

namespace npu_train::detail {
namespace {

struct DecoderMlp : torch::nn::Module {
  DecoderMlp() : torch::nn::Module("Mlp") {}
};

std::shared_ptr<Linear> normal_linear(torch::nn::Module& owner, const std::string& name, int64_t in, int64_t out, double std) {
  auto linear = owner.register_module(name, std::make_shared<Linear>(in, out, /*bias=*/true, /*packed=*/true));
  init::normal_(linear->weight, std);
  init::zeros_(linear->bias);
  return linear;
}

// Attention of queries that follow the tokens of the cache, whose keys and values they see too.
at::Tensor attention_after(KeyValueCache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const bool first = !cache.keys.defined();
  cache.keys = first ? k : at::cat({cache.keys, k}, 2);
  cache.values = first ? v : at::cat({cache.values, v}, 2);
  const int64_t queries = q.size(2), keys = cache.keys.size(2);
  if (first) return attention(q, k, v, {}, 0, /*causal=*/true);
  if (queries == 1) return attention(q, cache.keys, cache.values);
  const at::Tensor earlier = at::ones({queries, keys}, q.options().dtype(at::kBool)).tril(keys - queries);
  return attention(q, cache.keys, cache.values, earlier);
}

}  // namespace

Embedding::Embedding(int64_t rows, int64_t dim, double std)
    : torch::nn::Module("Embedding"), weight(register_parameter("weight", at::empty({rows, dim}))) {
  init::normal_(weight, std);
}

at::Tensor Embedding::forward(const at::Tensor& rows) const { return at::embedding(weight, rows); }

at::Tensor Embedding::products(const at::Tensor& x) const { return packed_linear(x, weight); }

CausalSelfAttention::CausalSelfAttention(const DecoderOptions& options)
    : torch::nn::Module("CausalSelfAttention"), heads_(options.heads), dropout_(options.dropout) {
  qkv_ = normal_linear(*this, "qkv", options.dim, 3 * options.dim, options.std);
  proj_ = normal_linear(*this, "proj", options.dim, options.dim, options.residual_std);
}

at::Tensor CausalSelfAttention::forward(const at::Tensor& x, KeyValueCache* cache) const {
  const int64_t n = x.size(0), tokens = x.size(1), dim = x.size(2);
  const auto qkv = qkv_->forward(x).view({n, tokens, 3, heads_, dim / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor y = cache != nullptr ? attention_after(*cache, qkv[0], qkv[1], qkv[2])
                                        : npu_train::attention(qkv[0], qkv[1], qkv[2], {}, is_training() ? dropout_ : 0.0, /*causal=*/true);
  return proj_->forward(y.transpose(1, 2).reshape({n, tokens, dim}));
}

DecoderBlock::DecoderBlock(const DecoderOptions& options) : torch::nn::Module("DecoderBlock"), dropout_(options.dropout) {
  ln_1_ = add_layer_norm(*this, "ln_1", options.dim, options.norm_eps);
  attention_ = register_module("attention", std::make_shared<CausalSelfAttention>(options));
  ln_2_ = add_layer_norm(*this, "ln_2", options.dim, options.norm_eps);
  auto mlp = register_module("mlp", std::make_shared<DecoderMlp>());
  fc1_ = normal_linear(*mlp, "fc1", options.dim, 4 * options.dim, options.std);
  fc2_ = normal_linear(*mlp, "fc2", 4 * options.dim, options.dim, options.residual_std);
}

at::Tensor DecoderBlock::forward(const at::Tensor& x, KeyValueCache* cache) const {
  const auto branch = [this](const at::Tensor& t) { return npu_train::dropout(t, dropout_, is_training()); };
  const auto attend = [&](const at::Tensor& t) { return attention_->forward(t, cache); };
  const at::Tensor y = x + branch(in_layer("attention", layer_norm(x, *ln_1_), attend));
  return y + branch(fc2_->forward(at::gelu(fc1_->forward(layer_norm(y, *ln_2_)), "tanh")));
}

}  // namespace npu_train::detail
