#include "models/blocks/decoder.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "models/blocks/layer_norm.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/packed_linear.hpp"

namespace npu_train::detail {
namespace {

constexpr const char *kPositions = "position_ids", *kMask = "decoder.mask";
constexpr int64_t kLeastRoom = 32;  // tokens

struct DecoderMlp : torch::nn::Module {
  DecoderMlp() : torch::nn::Module("Mlp") {}
};

// Repeats each kv head of [N, kv_heads, tokens, size] for `times` query heads.
at::Tensor repeated(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  return x.unsqueeze(2).expand({-1, -1, times, -1, -1}).flatten(1, 2);
}

// Computes attention for new tokens, which attend to the cached tokens, too. `times` query heads share one head of keys and values.
at::Tensor attention_after(KeyValueCache& cache, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const TokenPlaces& places,
                           int64_t times = 1) {
  const bool first = cache.tokens() == 0;
  cache.add(k, v);
  const int64_t queries = q.size(2), number = cache.tokens();
  const at::Tensor keys = repeated(cache.keys, times), values = repeated(cache.values, times);
  if (places.mask) return attention(q, keys, values, places.mask(q));
  if (first) return attention(q, keys, values, {}, 0, /*causal=*/true);
  if (queries == 1) return attention(q, keys, values);
  const at::Tensor earlier = at::ones({queries, number}, q.options().dtype(at::kBool)).tril(number - queries);
  return attention(q, keys, values, earlier);
}

std::string after(int64_t before) { return before > 0 ? " after " + std::to_string(before) + " others" : ""; }

// Returns the attention mask bool [N, 1, queries, keys] for the last `queries` tokens. `documents` [N, keys] has equal values for the
// tokens of a document. A token attends to the tokens of its document up to itself; with a window, only to the last `window` of them.
at::Tensor visible_in_documents(const at::Tensor& documents, int64_t queries, int64_t window) {
  const int64_t keys = documents.size(1), before = keys - queries;
  const at::Tensor places = at::arange(keys, documents.options().dtype(at::kLong)), asked = places.narrow(0, before, queries).unsqueeze(1);
  at::Tensor earlier = places.le(asked);
  if (window > 0) earlier = earlier.logical_and(places.gt(asked - window));
  return documents.narrow(1, before, queries).unsqueeze(2).eq(documents.unsqueeze(1)).logical_and(earlier).unsqueeze(1);
}

// Returns the mask of packed documents. The first layer of a pass creates it, and later layers reuse it. On CPUs and CUDA devices it is
// added to the scores and has their dtype: from a bool mask, scaled_dot_product_attention would create such a mask in each layer, and
// autograd would keep all of them. On NPUs it is bool, because their fused kernel accepts only bool masks
// (ScaledDotProductAttentionKernelNpuOpApi.cpp of op-plugin).
at::Tensor packed_mask(const ForwardContext& context, const at::Tensor& positions, int64_t window, const at::Tensor& q) {
  const bool is_added = q.is_cpu() || q.is_cuda();
  at::Tensor mask = context.get(kMask);
  if (mask.defined() && mask.scalar_type() == (is_added ? q.scalar_type() : at::kBool)) return mask;
  mask = visible_in_documents(positions.eq(0).cumsum(1), positions.size(1), window);
  if (is_added) mask = at::zeros(mask.sizes(), q.options().requires_grad(false)).masked_fill_(mask.logical_not(), -INFINITY);
  context.put(kMask, mask);
  return mask;
}

// Returns a tensor that begins with `held` [N, heads, tokens, size] and has room for at least `more` further tokens. It also reserves room
// for later tokens, up to `longest` tokens in total.
at::Tensor with_room(const at::Tensor& held, int64_t more, int64_t longest) {
  auto sizes = held.sizes().vec();
  const auto tokens = sizes[2];
  sizes[2] = tokens + std::max(more, std::min(tokens / 2 + kLeastRoom, longest - tokens));
  at::Tensor out = at::empty(sizes, held.options());
  out.narrow(2, 0, tokens).copy_(held);
  return out;
}

}  // namespace

at::Tensor packed_positions(const ForwardContext& context, const char* network, const at::Tensor& tokens, int64_t positions) {
  at::Tensor ids = context.get(kPositions);
  if (!ids.defined()) return ids;
  check(ids.sizes() == tokens.sizes() && ids.scalar_type() == at::kLong, ErrorKind::Usage, network, kPositions, " of ",
        c10::toString(ids.scalar_type()), " ", ids.sizes(), " for tokens ", tokens.sizes(), "; allowed: Long, of equal sizes");
  check_ids(network, "position", ids, positions, "model.context");
  return ids;
}

TokenPlaces packed_places(const ForwardContext& context, int64_t window) {
  const at::Tensor positions = context.get(kPositions);
  if (!positions.defined()) return {};
  return {.positions = positions, .mask = [=](const at::Tensor& q) { return packed_mask(context, positions, window, q); }};
}

TokenPlaces padded_places(const at::Tensor& padding, int64_t before, int64_t count, int64_t window) {
  const at::Tensor places = at::arange(before + count, padding.options()).unsqueeze(0), begins = padding.unsqueeze(1);
  const at::Tensor visible = visible_in_documents(places.ge(begins), count, window);
  return {.positions = (places.narrow(1, before, count) - begins).clamp_min(0), .mask = [visible](const at::Tensor&) { return visible; }};
}

void KeyValueCache::add(const at::Tensor& k, const at::Tensor& v) {
  const auto before = tokens(), more = k.size(2);
  if (before == 0) {
    keys = k, values = v;
    return;
  }
  if (!key_room_.defined() || key_room_.size(2) < before + more) {
    key_room_ = with_room(keys, more, longest_);
    value_room_ = with_room(values, more, longest_);
  }
  key_room_.narrow(2, before, more).copy_(k);
  value_room_.narrow(2, before, more).copy_(v);
  keys = key_room_.narrow(2, 0, before + more);
  values = value_room_.narrow(2, 0, before + more);
}

std::shared_ptr<Linear> normal_linear(torch::nn::Module& owner, const std::string& name, int64_t in, int64_t out, double std, bool bias,
                                      bool packed) {
  auto linear = owner.register_module(name, std::make_shared<Linear>(in, out, bias, packed));
  init::normal_(linear->weight, std);
  if (bias) init::zeros_(linear->bias);
  return linear;
}

// Checks ids on a CPU. Without this check, an index outside of the table ends in an operator's error that mentions neither the token nor
// the vocabulary. The check uses no operators, so that a trace of the network does not contain them. It skips other devices, because it
// would have to wait for their values.
void check_ids(const char* network, const char* what, const at::Tensor& tokens, int64_t rows, const char* option) {
  if (!tokens.is_cpu()) return;
  const auto ids = tokens.accessor<int64_t, 2>();
  for (int64_t i = 0; i < ids.size(0); ++i)
    for (int64_t k = 0; k < ids.size(1); ++k)
      check(ids[i][k] >= 0 && ids[i][k] < rows, ErrorKind::Data, network, what, " ", k, " of sequence ", i, " is ", ids[i][k],
            "; allowed: 0 to ", rows - 1, "; hint: set ", option, " to that of the data");
}

void check_tokens(const char* network, const at::Tensor& tokens, int64_t before, int64_t context, int64_t vocab_size) {
  check(tokens.dim() == 2 && tokens.scalar_type() == at::kLong && tokens.size(1) >= 1 && before + tokens.size(1) <= context,
        ErrorKind::Usage, network, "input of ", c10::toString(tokens.scalar_type()), " ", tokens.sizes(), after(before),
        "; this network requires Long [batch, tokens] of 1 to ", context, " tokens; hint: shorten the input, or set model.context");
  check_ids(network, "token", tokens, vocab_size, "model.vocab_size");
}

InputSpec token_input(int64_t vocab_size, int64_t context) {
  return {.name = "input",
          .dtype = at::kLong,
          .shape = {"batch", Extent("tokens", context)},
          .range = std::pair(0.0, static_cast<double>(vocab_size))};
}

Embedding::Embedding(int64_t rows, int64_t dim, double std)
    : torch::nn::Module("Embedding"), weight(register_parameter("weight", at::empty({rows, dim}))) {
  init::normal_(weight, std);
}

at::Tensor Embedding::forward(const at::Tensor& rows) const { return at::embedding(weight, rows); }

at::Tensor Embedding::products(const at::Tensor& x, bool packed) const { return packed ? packed_linear(x, weight) : at::linear(x, weight); }

CausalSelfAttention::CausalSelfAttention(const DecoderOptions& options)
    : torch::nn::Module("CausalSelfAttention"), heads_(options.heads), dropout_(options.dropout) {
  qkv_ = normal_linear(*this, "qkv", options.dim, 3 * options.dim, options.std, options.bias);
  proj_ = normal_linear(*this, "proj", options.dim, options.dim, options.residual_std, options.bias);
}

at::Tensor CausalSelfAttention::forward(const at::Tensor& x, KeyValueCache* cache, const TokenPlaces& places) const {
  const int64_t n = x.size(0), tokens = x.size(1), dim = x.size(2);
  const auto qkv = qkv_->forward(x).view({n, tokens, 3, heads_, dim / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
  const double dropout = is_training() ? dropout_ : 0.0;
  const auto attend = [&] {
    if (cache != nullptr) return attention_after(*cache, qkv[0], qkv[1], qkv[2], places);
    if (places.mask) return npu_train::attention(qkv[0], qkv[1], qkv[2], places.mask(qkv[0]), dropout);
    return npu_train::attention(qkv[0], qkv[1], qkv[2], {}, dropout, /*causal=*/true);
  };
  return proj_->forward(attend().transpose(1, 2).reshape({n, tokens, dim}));
}

RmsNorm::RmsNorm(int64_t dim, double eps)
    : torch::nn::Module("RmsNorm"), weight(register_parameter("weight", at::ones({dim}))), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  const at::Tensor wide = x.to(at::kFloat);
  return (wide * at::rsqrt(wide.pow(2).mean(-1, /*keepdim=*/true) + eps_)).to(x.scalar_type()) * weight.to(x.scalar_type());
}

at::Tensor rotary_frequencies(int64_t head_size, double theta) {
  return at::pow(theta, -at::arange(0, head_size, 2, at::TensorOptions().dtype(at::kFloat)) / static_cast<double>(head_size));
}

Rotary::Rotary(const at::Tensor& frequencies, int64_t context, double scale) {
  tables_.places = at::arange(context, frequencies.options());
  const at::Tensor angles = at::outer(tables_.places, frequencies);
  tables_.cos = angles.cos() * scale;
  tables_.sin = angles.sin() * scale;
}

Rotary::Tables Rotary::tables(at::Device device) const {
  const std::lock_guard lock(mutex_);
  if (tables_.cos.device() != device) tables_ = {tables_.cos.to(device), tables_.sin.to(device), tables_.places.to(device)};
  return tables_;
}

void Rotary::look_up(TokenPlaces& places) const {
  const auto all = tables(places.positions.device());
  places.cos = at::embedding(all.cos, places.positions).unsqueeze(1);
  places.sin = at::embedding(all.sin, places.positions).unsqueeze(1);
}

at::Tensor Rotary::operator()(const at::Tensor& x, int64_t before, const TokenPlaces& places) const {
  at::Tensor cos = places.cos, sin = places.sin;
  if (!cos.defined()) {
    const auto all = tables(x.device());
    cos = all.cos.narrow(0, before, x.size(2)), sin = all.sin.narrow(0, before, x.size(2));
  }
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1).to(x.scalar_type());
}

at::Tensor Rotary::within(int64_t window, int64_t queries, int64_t keys, at::Device device) const {
  const at::Tensor places = tables(device).places;
  const at::Tensor distance = places.narrow(0, keys - queries, queries).unsqueeze(1) - places.narrow(0, 0, keys);
  return distance.ge(0).logical_and(distance.lt(window));
}

GroupedQueryAttention::GroupedQueryAttention(const GroupedQueryOptions& o)
    : torch::nn::Module("GroupedQueryAttention"), heads_(o.heads), kv_heads_(o.kv_heads), window_(o.window), fused_(o.fused_kernels) {
  const int64_t kv_dim = o.dim / o.heads * o.kv_heads;
  q_proj_ = normal_linear(*this, "q_proj", o.dim, o.dim, o.std, o.qkv_bias, fused_);
  k_proj_ = normal_linear(*this, "k_proj", o.dim, kv_dim, o.std, o.qkv_bias, fused_);
  v_proj_ = normal_linear(*this, "v_proj", o.dim, kv_dim, o.std, o.qkv_bias, fused_);
  proj_ = normal_linear(*this, "proj", o.dim, o.dim, o.std, /*bias=*/false, fused_);
}

at::Tensor GroupedQueryAttention::forward(const at::Tensor& x, const Rotary& rotary, KeyValueCache* cache,
                                          const TokenPlaces& places) const {
  const int64_t n = x.size(0), tokens = x.size(1), dim = x.size(2), times = heads_ / kv_heads_;
  const int64_t before = cache != nullptr ? cache->tokens() : 0;
  const auto heads = [&](const Linear& projection, int64_t number) {
    return projection.forward(x).view({n, tokens, number, dim / heads_}).transpose(1, 2);
  };
  const at::Tensor q = rotary(heads(*q_proj_, heads_), before, places);
  const at::Tensor k = rotary(heads(*k_proj_, kv_heads_), before, places), v = heads(*v_proj_, kv_heads_);
  const auto attend = [&] {
    if (window_ == 0 && cache != nullptr) return attention_after(*cache, q, k, v, places, times);
    if (window_ == 0 && !places.mask)
      return npu_train::attention(q, repeated(k, times), repeated(v, times), {}, 0, /*causal=*/true, fused_);
    if (cache != nullptr) cache->add(k, v);
    const at::Tensor keys = cache != nullptr ? cache->keys : k, values = cache != nullptr ? cache->values : v;
    const at::Tensor mask = places.mask ? places.mask(q) : rotary.within(window_, tokens, keys.size(2), x.device());
    return npu_train::attention(q, repeated(keys, times), repeated(values, times), mask, 0, /*causal=*/false, fused_);
  };
  return proj_->forward(attend().transpose(1, 2).reshape({n, tokens, dim}));
}

SwiGlu::SwiGlu(int64_t dim, int64_t hidden, Activation activation, double std, bool packed)
    : torch::nn::Module("SwiGlu"), activation_(activation) {
  gate_ = normal_linear(*this, "gate", dim, hidden, std, /*bias=*/false, packed);
  up_ = normal_linear(*this, "up", dim, hidden, std, /*bias=*/false, packed);
  down_ = normal_linear(*this, "down", hidden, dim, std, /*bias=*/false, packed);
}

at::Tensor SwiGlu::forward(const at::Tensor& x) const {
  return down_->forward(activated(gate_->forward(x), activation_) * up_->forward(x));
}

DecoderBlock::DecoderBlock(const DecoderOptions& options)
    : torch::nn::Module("DecoderBlock"), dropout_(options.dropout), activation_(options.activation) {
  ln_1_ = add_layer_norm(*this, "ln_1", options.dim, options.norm_eps, options.bias);
  attention_ = register_module("attention", std::make_shared<CausalSelfAttention>(options));
  ln_2_ = add_layer_norm(*this, "ln_2", options.dim, options.norm_eps, options.bias);
  auto mlp = register_module("mlp", std::make_shared<DecoderMlp>());
  fc1_ = normal_linear(*mlp, "fc1", options.dim, options.hidden, options.std, options.bias);
  fc2_ = normal_linear(*mlp, "fc2", options.hidden, options.dim, options.residual_std, options.bias);
}

at::Tensor DecoderBlock::forward(const at::Tensor& x, KeyValueCache* cache, const TokenPlaces& places) const {
  const auto branch = [this](const at::Tensor& t) { return npu_train::dropout(t, dropout_, is_training()); };
  const auto attend = [&](const at::Tensor& t) { return attention_->forward(t, cache, places); };
  const at::Tensor y = x + branch(in_layer("attention", layer_norm(x, *ln_1_), attend));
  return y + branch(fc2_->forward(activated(fc1_->forward(layer_norm(y, *ln_2_)), activation_)));
}

}  // namespace npu_train::detail
