#include "npu_train/models/glm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <cstdint>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "models/blocks/decoder.hpp"
#include "models/blocks/host_memory.hpp"
#include "models/blocks/layer_norm.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/layers.hpp"

namespace npu_train::detail {
namespace {

// Masks and rotations for the last tokens of N sequences, which are the queries of the attention.
struct GlmPlaces {
  at::Tensor visible;   // bool [N, 1, queries, tokens]: true for tokens that a query attends to
  at::Tensor cos, sin;  // fp32 [N, 1, queries, 2, head_size / 4], for the first and the second position
};

// The documents in rows of tokens: for each token, the indices of the first and the last token of its document, int64 [N, T]. If they are
// undefined, each row is one document.
struct GlmDocuments {
  at::Tensor firsts{}, lasts{};

  // Counts, for each token, the true elements of its document up to the token: bool [N, T] to int64 [N, T].
  at::Tensor running(const at::Tensor& rows) const {
    const at::Tensor counts = rows.cumsum(1);
    return firsts.defined() ? counts - (counts - rows.to(at::kLong)).gather(1, firsts) : counts;
  }
  // Counts the true elements of each token's complete document: [N, T], or [N, 1] if each row is one document. Uses cumsum, because NPUs do
  // not sum int64.
  at::Tensor total(const at::Tensor& rows) const {
    const at::Tensor counts = running(rows);
    return lasts.defined() ? counts.gather(1, lasts) : counts.select(1, -1).unsqueeze(1);
  }
};

// Computes attention masks, and rotations for both positions of GLM's tokens.
class GlmPlaceTable {
 public:
  explicit GlmPlaceTable(const GlmOptions& options);

  // Computes the places of the tokens of each row of `tokens` [N, T], except the first `before` ones. Uses only tensor operators, so that
  // the host does not wait for a device.
  GlmPlaces operator()(const at::Tensor& tokens, int64_t before = 0, const GlmDocuments& documents = {}) const;

 private:
  at::Tensor first_positions(const at::Tensor& tokens, const at::Tensor& started, const at::Tensor& prefix,
                             const GlmDocuments& documents) const;
  std::pair<at::Tensor, at::Tensor> tables(at::Device device) const;

  int64_t bos_, gmask_, mask_;
  mutable std::mutex mutex_;      // protects the tables: several threads may predict at once
  mutable at::Tensor cos_, sin_;  // fp32 [context + 1, head_size / 4], on the device of the last call
};

constexpr double kTheta = 10000;

// Returns the index of the first `token` in the prefix [N, T] of a document; the `length` of the prefix if there is no such token.
at::Tensor place_in_prefix(const at::Tensor& tokens, int64_t token, const at::Tensor& prefix, const at::Tensor& length,
                           const GlmDocuments& documents) {
  const at::Tensor from_it_on = documents.running(tokens.eq(token).logical_and(prefix)).gt(0).logical_and(prefix);
  return length - documents.total(from_it_on);
}

// Returns the documents of packed rows from the positions of their tokens: each document begins with position 0.
GlmDocuments packed_documents(const at::Tensor& positions) {
  const int64_t count = positions.size(1);
  const at::Tensor index = at::arange(count, positions.options()).expand_as(positions), begins = positions.eq(0);
  const at::Tensor ends = at::cat({begins.narrow(1, 1, count - 1), at::ones_like(begins.narrow(1, 0, 1))}, 1);
  const at::Tensor firsts = std::get<0>(at::where(begins, index, 0).cummax(1));
  const at::Tensor lasts = std::get<0>(at::where(ends, index, count - 1).flip({1}).cummin(1)).flip({1});
  return {.firsts = firsts, .lasts = lasts};
}

// Returns the documents of rows of `count` tokens. The first `padding` [N] tokens of each row are padding and form a document of their own.
GlmDocuments padded_documents(const at::Tensor& padding, int64_t count) {
  const at::Tensor begins = padding.unsqueeze(1), index = at::arange(count, padding.options()).unsqueeze(0);
  const at::Tensor real = index.ge(begins);
  return {.firsts = at::where(real, begins, 0), .lasts = at::where(real, count - 1, (begins - 1).clamp_max(count - 1))};
}

GlmPlaceTable::GlmPlaceTable(const GlmOptions& o) : bos_(o.bos_token), gmask_(o.gmask_token), mask_(o.mask_token) {
  const int64_t half = o.dim / o.heads / 2;
  const auto fp32 = at::TensorOptions().dtype(at::kFloat);
  // Computes in fp16, because the published network was trained with fp16 frequencies: at position 2000, exact frequencies would rotate by
  // up to half a radian more.
  const at::Tensor frequencies = at::pow(kTheta, -at::arange(0, half, 2, fp32) / static_cast<double>(half)).to(at::kHalf).to(at::kFloat);
  const at::Tensor angles = at::outer(at::arange(o.context + 1, fp32), frequencies);
  cos_ = angles.cos();
  sin_ = angles.sin();
}

std::pair<at::Tensor, at::Tensor> GlmPlaceTable::tables(at::Device device) const {
  const std::lock_guard lock(mutex_);
  if (cos_.device() != device) cos_ = cos_.to(device), sin_ = sin_.to(device);
  return {cos_, sin_};
}

at::Tensor GlmPlaceTable::first_positions(const at::Tensor& tokens, const at::Tensor& started, const at::Tensor& prefix,
                                          const GlmDocuments& documents) const {
  const at::Tensor length = documents.total(prefix);
  const at::Tensor gmask = place_in_prefix(tokens, gmask_, prefix, length, documents);
  const at::Tensor mask = place_in_prefix(tokens, mask_, prefix, length, documents);
  const at::Tensor last = (length - 1).clamp_min(0);
  const at::Tensor gap = at::where(gmask.lt(length), gmask, at::where(mask.lt(length), mask, last));
  const at::Tensor index = at::arange(tokens.size(1), tokens.options());
  return at::where(started, gap, documents.firsts.defined() ? index - documents.firsts : index);
}

GlmPlaces GlmPlaceTable::operator()(const at::Tensor& tokens, int64_t before, const GlmDocuments& documents) const {
  const int64_t all = tokens.size(1), queries = all - before;
  const at::Tensor started = documents.running(tokens.eq(bos_)).gt(0);  // true from the first bos of a document on
  const at::Tensor has_bos = documents.lasts.defined() ? started.gather(1, documents.lasts) : started.select(1, -1).unsqueeze(1);
  const at::Tensor prefix = started.logical_not().logical_and(has_bos);
  const at::Tensor positions = at::stack({first_positions(tokens, started, prefix, documents), documents.running(started)}, -1);
  const at::Tensor asked = before == 0 ? positions : positions.narrow(1, before, queries);
  const auto [cos, sin] = tables(tokens.device());
  const at::Tensor keys = at::arange(all, tokens.options());
  const at::Tensor places = before == 0 ? keys : keys.narrow(0, before, queries);
  const at::Tensor earlier = keys.unsqueeze(0).le(places.unsqueeze(1));
  at::Tensor visible = earlier.unsqueeze(0).logical_or(prefix.unsqueeze(1));
  if (documents.firsts.defined())
    visible = visible.logical_and(documents.firsts.narrow(1, before, queries).unsqueeze(2).eq(documents.firsts.unsqueeze(1)));
  return {.visible = visible.unsqueeze(1), .cos = at::embedding(cos, asked).unsqueeze(1), .sin = at::embedding(sin, asked).unsqueeze(1)};
}

// Rotates both halves of x [N, heads, tokens, head_size]. Each half has Llama's layout: component i of its first half and component i of
// its second half are rotated as a pair. The result has the dtype of x.
at::Tensor rotated_in_halves(const at::Tensor& x, const GlmPlaces& places) {
  const int64_t quarter = x.size(3) / 4;
  const auto parts = x.unflatten(3, {2, 2, quarter}).unbind(4);
  const at::Tensor &a = parts[0], &b = parts[1];
  return at::stack({a * places.cos - b * places.sin, b * places.cos + a * places.sin}, 4).flatten(3).to(x.scalar_type());
}

}  // namespace
}  // namespace npu_train::detail

namespace npu_train {
namespace {

constexpr double kGlmStd = 0.02;                                                       // standard deviation for embedding and head
constexpr const char *kVisible = "glm.visible", *kCos = "glm.cos", *kSin = "glm.sin";  // names of the values from embed() for the blocks

struct GlmBlocks : torch::nn::Module {
  GlmBlocks() : torch::nn::Module("Blocks") {}
};

struct GlmMlp : torch::nn::Module {
  GlmMlp() : torch::nn::Module("Mlp") {}
};

int64_t glm_hidden(const GlmOptions& o) { return o.hidden > 0 ? o.hidden : 4 * o.dim; }

// Returns the standard deviation of a layer's weights that makes its outputs as large as its inputs, at every width. This is needed
// because the outputs of each branch in GlmBlock are added to normalised values.
double glm_std(int64_t in) { return 1 / std::sqrt(static_cast<double>(in)); }

// Attention of GLM. Parameters, with biases: query_key_value [3 dim, dim], interleaved per head; proj [dim, dim].
class GlmAttention : public torch::nn::Module {
 public:
  explicit GlmAttention(const GlmOptions& o) : torch::nn::Module("GlmAttention"), heads_(o.heads) {
    query_key_value_ = detail::normal_linear(*this, "query_key_value", o.dim, 3 * o.dim, glm_std(o.dim));
    proj_ = detail::normal_linear(*this, "proj", o.dim, o.dim, glm_std(o.dim));
  }

  // Maps [N, tokens, dim] to [N, tokens, dim]. With a cache, x follows the cached tokens and is appended to them.
  at::Tensor forward(const at::Tensor& x, const detail::GlmPlaces& places, detail::KeyValueCache* cache) const {
    const int64_t n = x.size(0), tokens = x.size(1), dim = x.size(2);
    const auto parts = query_key_value_->forward(x).view({n, tokens, heads_, 3 * dim / heads_}).transpose(1, 2).chunk(3, -1);
    const at::Tensor q = rotated_in_halves(parts[0], places);
    at::Tensor k = rotated_in_halves(parts[1], places), v = parts[2];
    if (cache != nullptr) {
      cache->add(k, v);
      k = cache->keys, v = cache->values;
    }
    // The reference scales the products by 1 / (layer number) and undoes this before the softmax, to avoid overflows in fp16. That is not
    // needed here, because this attention computes them in fp32.
    const at::Tensor y = npu_train::attention(q, k, v, places.visible);
    return proj_->forward(y.transpose(1, 2).reshape({n, tokens, dim}));
  }

 private:
  int64_t heads_;
  std::shared_ptr<Linear> query_key_value_, proj_;
};

// Computes y = norm(x), z = norm(alpha y + attention(y)), and returns alpha z + mlp(z): the residual of each branch is its normalised
// input.
class GlmBlock : public torch::nn::Module {
 public:
  explicit GlmBlock(const GlmOptions& o) : torch::nn::Module("GlmBlock"), alpha_(std::sqrt(2.0 * static_cast<double>(o.layers))) {
    ln_1_ = detail::add_layer_norm(*this, "ln_1", o.dim, o.norm_eps);
    attention_ = register_module("attention", std::make_shared<GlmAttention>(o));
    ln_2_ = detail::add_layer_norm(*this, "ln_2", o.dim, o.norm_eps);
    auto mlp = register_module("mlp", std::make_shared<GlmMlp>());
    fc1_ = detail::normal_linear(*mlp, "fc1", o.dim, glm_hidden(o), glm_std(o.dim));
    fc2_ = detail::normal_linear(*mlp, "fc2", glm_hidden(o), o.dim, glm_std(glm_hidden(o)));
  }

  at::Tensor forward(const at::Tensor& x, const detail::GlmPlaces& places, detail::KeyValueCache* cache = nullptr) const {
    const auto attend = [&](const at::Tensor& t) { return attention_->forward(t, places, cache); };
    const at::Tensor y = detail::layer_norm(x, *ln_1_);
    const at::Tensor z = detail::layer_norm(alpha_ * y + in_layer("attention", y, attend), *ln_2_);
    return alpha_ * z + fc2_->forward(at::gelu(fc1_->forward(z), "tanh"));
  }

 private:
  double alpha_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_1_, ln_2_;
  std::shared_ptr<GlmAttention> attention_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

class Glm : public torch::nn::Module {
 public:
  explicit Glm(const GlmOptions& o)
      : torch::nn::Module("Glm"), places_(o), bos_token_(o.bos_token), vocab_size_(o.vocab_size), context_(o.context) {
    token_embedding_ = register_module("token_embedding", std::make_shared<detail::Embedding>(o.vocab_size, o.dim, kGlmStd));
    auto list = register_module("blocks", std::make_shared<GlmBlocks>());
    for (int64_t i = 0; i < o.layers; ++i) blocks.push_back(list->register_module(std::to_string(i), std::make_shared<GlmBlock>(o)));
    ln_ = detail::add_layer_norm(*this, "ln", o.dim, o.norm_eps);
    if (!o.tie_embeddings) head_ = detail::normal_linear(*this, "head", o.dim, o.vocab_size, kGlmStd, /*bias=*/false);
  }

  // Maps tokens [N, T] to vectors [N, T, dim] and puts their GlmPlaces into the context for the blocks.
  at::Tensor embed(const ForwardContext& context, const at::Tensor& tokens) {
    check_tokens(tokens, 0);
    const at::Tensor packed = detail::packed_positions(context, "glm", tokens, context_);
    const auto places = places_(tokens, 0, packed.defined() ? detail::packed_documents(packed) : detail::GlmDocuments{});
    context.put(kVisible, places.visible);
    context.put(kCos, places.cos);
    context.put(kSin, places.sin);
    return token_embedding_->forward(tokens);
  }

  at::Tensor block(const ForwardContext& context, size_t i, const at::Tensor& x) {
    const detail::GlmPlaces places{.visible = context.get(kVisible), .cos = context.get(kCos), .sin = context.get(kSin)};
    check(places.visible.defined(), ErrorKind::Usage, "glm", "block ", i, " runs in another context than the block embed");
    return blocks[i]->forward(x, places);
  }

  at::Tensor head(const at::Tensor& x) {
    const at::Tensor y = detail::layer_norm(x, *ln_);
    return head_ != nullptr ? head_->forward(y) : token_embedding_->products(y);
  }

  // Returns the logits of the tokens of `all` after the first `before`, which are in the caches. `padding` may be undefined.
  at::Tensor more(const at::Tensor& all, int64_t before, const at::Tensor& padding, std::vector<detail::KeyValueCache>& caches) {
    const auto places = places_(all, before, padding.defined() ? detail::padded_documents(padding, all.size(1)) : detail::GlmDocuments{});
    at::Tensor x = token_embedding_->forward(all.narrow(1, before, all.size(1) - before));
    for (size_t i = 0; i < blocks.size(); ++i) x = blocks[i]->forward(x, places, &caches[i]);
    return head(x);
  }

  void check_tokens(const at::Tensor& tokens, int64_t before) const { detail::check_tokens("glm", tokens, before, context_, vocab_size_); }

  int64_t context() const { return context_; }  // tokens of the longest sequence

  // Returns a token other than bos.
  int64_t plain_token() const { return bos_token_ == 0 ? vocab_size_ - 1 : 0; }

  // Returns whether any row of `piece`, which follows the tokens `earlier`, contains the first bos of its sequence.
  bool ends_a_prefix(const at::Tensor& earlier, const at::Tensor& piece) const {
    const auto has = [this](const at::Tensor& tokens) { return tokens.eq(bos_token_).any(1); };
    return has(piece).logical_and(has(earlier).logical_not()).any().item<bool>();
  }

  std::vector<std::shared_ptr<GlmBlock>> blocks;

 private:
  detail::GlmPlaceTable places_;
  int64_t bos_token_, vocab_size_, context_;
  std::shared_ptr<detail::Embedding> token_embedding_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_;
  std::shared_ptr<Linear> head_;
};

// The state of a sequence that is read in pieces.
struct GlmSequence {
  std::shared_ptr<Glm> net;
  at::Tensor padding{};  // [N]: number of padding tokens at the beginning of each row; undefined: no padding
  at::Tensor tokens{};   // [N, T]; undefined before the first piece
  std::vector<detail::KeyValueCache> caches{};

  // Replaces the tokens of the padding, because a bos in it would end a prefix.
  at::Tensor without_padding(const at::Tensor& piece, int64_t before) const {
    if (!padding.defined()) return piece;
    const at::Tensor index = at::arange(before, before + piece.size(1), padding.options());
    return piece.masked_fill(index.unsqueeze(0).lt(padding.unsqueeze(1)), net->plain_token());
  }

  at::Tensor operator()(const at::Tensor& given) {
    int64_t before = tokens.defined() ? tokens.size(1) : 0;
    net->check_tokens(given, before);
    const at::Tensor piece = without_padding(given, before);
    const int64_t count = piece.size(1);
    if (before > 0 && net->ends_a_prefix(tokens, piece)) caches.clear();
    tokens = before > 0 ? at::cat({tokens, piece}, 1) : piece;
    if (caches.empty()) caches.assign(net->blocks.size(), detail::KeyValueCache(net->context())), before = 0;
    return net->more(tokens, before, padding, caches).narrow(1, tokens.size(1) - before - count, count);
  }
};

int64_t glm_parameters(const GlmOptions& o) {
  const int64_t hidden = glm_hidden(o), block = 4 * o.dim * o.dim + 2 * o.dim * hidden + 9 * o.dim + hidden;
  return (o.tie_embeddings ? 1 : 2) * o.vocab_size * o.dim + o.layers * block + 2 * o.dim;
}

void check_glm_options(const GlmOptions& o) {
  check(o.vocab_size > 0 && o.context > 0 && o.layers > 0 && o.heads > 0 && o.dim > 0 && o.hidden >= 0 && o.norm_eps >= 0, ErrorKind::Usage,
        "glm", "vocab_size, context, layers, heads and dim must be at least 1, hidden and norm_eps at least 0");
  check(o.dim % (4 * o.heads) == 0, ErrorKind::Usage, "glm", "dim is ", o.dim, "; it must be a multiple of 4 * heads = ", 4 * o.heads,
        ", because two positions rotate pairs of a head's components");
  const auto below = [&](const char* option, int64_t token) {
    check(token >= 0 && token < o.vocab_size, ErrorKind::Usage, "glm", option, " is ", token, "; allowed: 0 to ", o.vocab_size - 1,
          " (vocab_size - 1)");
  };
  below("bos_token", o.bos_token), below("gmask_token", o.gmask_token), below("mask_token", o.mask_token);
  check(o.bos_token != o.gmask_token && o.bos_token != o.mask_token, ErrorKind::Usage, "glm", "bos_token is ", o.bos_token,
        ", as a mask token is; they must differ");
}

}  // namespace

const ConfigTable<GlmOptions>& GlmOptions::config_table() {
  using T = GlmOptions;
  const auto token = between(0, (1 << 24) - 1);
  static const auto table = ConfigTable<T>("model glm")
                                .field("vocab_size", &T::vocab_size, "number of different tokens", between(1, 1 << 24))
                                .field("context", &T::context, "tokens of the longest input", between(1, 1 << 20))
                                .field("layers", &T::layers, "blocks", between(1, 4096))
                                .field("heads", &T::heads, "number of attention heads", between(1, 4096))
                                .field("dim", &T::dim, "width of a token; must be a multiple of 4 * heads", between(1, 1 << 16))
                                .field("hidden", &T::hidden, "width of the MLP; 0: 4 * dim", between(0, 1 << 20))
                                .field("norm_eps", &T::norm_eps, "added to the variance in the norms", between(0, 1))
                                .field("bos_token", &T::bos_token, "token that ends the prefix; below vocab_size", token)
                                .field("gmask_token", &T::gmask_token, "token that marks a gap at the end of the prefix", token)
                                .field("mask_token", &T::mask_token, "token that marks a gap in the prefix", token)
                                .field("tie_embeddings", &T::tie_embeddings, "the head uses the token embedding")
                                .field("weights", &T::weights, "file with initial weights: safetensors, .pth or a checkpoint")
                                .field("weights_strict", &T::weights_strict,
                                       "true: weights of another network are an error; false: the matching tensors are loaded")
                                .synonym("pretrained", "weights")
                                .synonym("max_sequence_length", "context")
                                .synonym("max_seq_len", "context")
                                .synonym("num_layers", "layers")
                                .synonym("n_layers", "layers")
                                .synonym("num_attention_heads", "heads")
                                .synonym("num_heads", "heads")
                                .synonym("n_heads", "heads")
                                .synonym("hidden_size", "dim")
                                .synonym("embed_dim", "dim")
                                .synonym("inner_hidden_size", "hidden")
                                .synonym("hidden_dim", "hidden")
                                .synonym("layernorm_epsilon", "norm_eps")
                                .synonym("bos_token_id", "bos_token")
                                .synonym("gmask_token_id", "gmask_token")
                                .synonym("mask_token_id", "mask_token")
                                .synonym("tie_word_embeddings", "tie_embeddings");
  return table;
}

GlmOptions glm_6b_options() { return {}; }

GlmOptions glm_tiny_options() {
  return {.vocab_size = 256, .context = 64, .layers = 2, .heads = 2, .dim = 64, .bos_token = 255, .gmask_token = 254, .mask_token = 253};
}

Model glm(const GlmOptions& options, const std::string& name) {
  check_glm_options(options);
  detail::check_host_memory("glm", glm_parameters(options));
  const auto net = std::make_shared<Glm>(options);
  Model model = detail::model_of_blocks(name, net, options, /*packs_documents=*/true);
  const auto start = [net](const at::Tensor& padding) {
    auto sequence = std::make_shared<GlmSequence>(GlmSequence{.net = net, .padding = padding});
    return [sequence](const at::Tensor& piece) { return (*sequence)(piece); };
  };
  model.start_sequence = [start] { return start({}); };
  model.start_batch = start;
  return model;
}

}  // namespace npu_train
