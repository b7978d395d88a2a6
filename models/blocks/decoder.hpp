// The parts of decoder-only transformers: embeddings, causal self-attention, pre-norm blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "models/blocks/activation.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train::detail {

// A table of vectors. Parameter: weight [rows, dim], drawn from N(0, std^2).
class Embedding : public torch::nn::Module {
 public:
  Embedding(int64_t rows, int64_t dim, double std);

  // Looks up rows: int64 [...] to [..., dim].
  at::Tensor forward(const at::Tensor& rows) const;
  // Returns the products of vectors [..., dim] with all rows, [..., rows]: the head of a network with a tied embedding (Press and Wolf,
  // "Using the Output Embedding to Improve Language Models", EACL 2017).
  at::Tensor products(const at::Tensor& x, bool packed = true) const;

  at::Tensor weight;
};

// Registers a linear layer with weights from N(0, std^2) and zero biases.
std::shared_ptr<Linear> normal_linear(torch::nn::Module& owner, const std::string& name, int64_t in, int64_t out, double std,
                                      bool bias = true, bool packed = true);

// Throws Error(Data) for an id outside of a table of `rows` rows; checks only on a CPU. The message contains `what` (the kind of id) and
// `option`, which sets the number of rows.
void check_ids(const char* network, const char* what, const at::Tensor& ids, int64_t rows, const char* option);

// Checks the input of a decoder: ids [batch, tokens], at most `context` tokens including the `before` earlier ones and, on a CPU, each id
// below `vocab_size`. Errors begin with the network's name.
void check_tokens(const char* network, const at::Tensor& tokens, int64_t before, int64_t context, int64_t vocab_size);

struct DecoderOptions {
  int64_t dim = 0;     // width of a token
  int64_t heads = 0;   // divides dim
  int64_t hidden = 0;  // width of the MLP
  Activation activation = Activation::GeluTanh;
  double dropout = 0;       // dropout rate on the attention weights and after both branches
  double norm_eps = 0;      // added to the variance in layer normalisation
  bool bias = true;         // true: linear layers and norms have biases
  double std = 0;           // standard deviation of the initial weights
  double residual_std = 0;  // standard deviation for the last layer of each branch
};

// The positions and the mask of tokens if they do not follow from the order of the tokens alone: in packed documents, and in padded rows.
struct TokenPlaces {
  at::Tensor positions{};  // int64 [N, tokens]; undefined: the positions after those of the cached tokens
  // Returns the mask [N, 1, tokens, keys] that attention() needs for queries [N, heads, tokens, size]. Empty: a token attends to itself and
  // to all earlier tokens.
  std::function<at::Tensor(const at::Tensor& q)> mask{};
  at::Tensor cos{}, sin{};  // rotations at `positions`, fp32 [N, 1, tokens, frequencies], from Rotary::look_up()
};

// Returns the "position_ids" [N, T] of a batch of packed documents with the tokens [N, T]; the first token of each document has position 0.
// Undefined for other batches. Error(Usage) for another shape; Error(Data), only on a CPU, for a position that is not below `positions`.
at::Tensor packed_positions(const ForwardContext& context, const char* network, const at::Tensor& tokens, int64_t positions);
// Returns the places of a batch of packed documents for a block; empty places for other batches. A token attends to the last `window`
// tokens of its document, itself included; with a window of 0, to itself and to all earlier tokens of its document. All layers of a pass
// share the mask that the first layer puts into the context.
TokenPlaces packed_places(const ForwardContext& context, int64_t window = 0);

// Returns the places of `count` tokens after `before` others, in rows whose first `padding` [N] tokens are padding.
TokenPlaces padded_places(const at::Tensor& padding, int64_t before, int64_t count, int64_t window = 0);

// Keys and values [N, heads, tokens, dim / heads] of the tokens that an attention layer has processed; undefined before the first token.
class KeyValueCache {
 public:
  // `longest`: the largest number of tokens for which memory is reserved in advance.
  explicit KeyValueCache(int64_t longest) : longest_(longest) {}

  at::Tensor keys, values;
  int64_t tokens() const { return keys.defined() ? keys.size(2) : 0; }
  // Appends the keys and values of new tokens.
  void add(const at::Tensor& k, const at::Tensor& v);

 private:
  int64_t longest_;
  at::Tensor key_room_, value_room_;  // have room for more tokens, so that a new token does not copy all earlier ones
};

// Causal self-attention. Parameters: qkv [3 dim, dim] (queries, keys, values), proj [dim, dim].
class CausalSelfAttention : public torch::nn::Module {
 public:
  explicit CausalSelfAttention(const DecoderOptions& options);

  // Maps [N, tokens, dim] to [N, tokens, dim]. With a cache, x follows the cached tokens and is appended to them.
  at::Tensor forward(const at::Tensor& x, KeyValueCache* cache = nullptr, const TokenPlaces& places = {}) const;

 private:
  int64_t heads_;
  double dropout_;
  std::shared_ptr<Linear> qkv_, proj_;
};

// Computes x / sqrt(mean(x^2) + eps) * weight over the last dimension, in fp32 (Zhang and Sennrich, "Root Mean Square Layer Normalization",
// NeurIPS 2019). Parameter: weight [dim].
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(int64_t dim, double eps);

  // Normalises x [..., dim]. The result has the dtype of x.
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;

 private:
  double eps_;
};

// Returns the standard rotary frequencies theta^(-2 i / head_size), fp32 [head_size / 2].
at::Tensor rotary_frequencies(int64_t head_size, double theta);

// Rotary position embedding (Su et al., "RoFormer", 2021) in Llama's layout: component i of the first half of a head's vector and component
// i of the second half are rotated as a pair, by position * frequency i.
class Rotary {
 public:
  // `scale` is a factor on the rotated vectors.
  Rotary(const at::Tensor& frequencies, int64_t context, double scale = 1);

  // Sets `cos` and `sin` of places from their `positions`.
  void look_up(TokenPlaces& places) const;
  // Rotates x [N, heads, tokens, head_size]. The first token has the position `before`; if `places` has cos and sin, these are used
  // instead. The result has the dtype of x.
  at::Tensor operator()(const at::Tensor& x, int64_t before = 0, const TokenPlaces& places = {}) const;
  // Returns a sliding-window mask, bool [queries, keys]: each of the last `queries` of `keys` tokens attends to its last `window` tokens.
  at::Tensor within(int64_t window, int64_t queries, int64_t keys, at::Device device) const;

 private:
  struct Tables {
    at::Tensor cos, sin;  // fp32 [context, frequencies]
    at::Tensor places;    // fp32 [context]: 0, 1, ...
  };
  Tables tables(at::Device device) const;

  mutable std::mutex mutex_;  // protects tables_: several threads may predict at once
  mutable Tables tables_;     // on the device of the last call
};

struct GroupedQueryOptions {
  int64_t dim = 0;       // width of a token
  int64_t heads = 0;     // query heads; divides dim
  int64_t kv_heads = 0;  // key and value heads; divides heads
  int64_t window = 0;    // number of tokens that a token attends to, itself included; 0: all earlier ones
  bool qkv_bias = false;
  double std = 0;  // standard deviation of the initial weights
  bool fused_kernels = true;
};

// Causal attention in which heads / kv_heads query heads share one head of keys and values (Ainslie et al., "GQA", EMNLP 2023), with rotary
// positions. Parameters: q_proj, k_proj, v_proj, proj; only with qkv_bias, the first three have biases.
class GroupedQueryAttention : public torch::nn::Module {
 public:
  explicit GroupedQueryAttention(const GroupedQueryOptions& options);

  // Maps [N, tokens, dim] to [N, tokens, dim]. With a cache, x follows the cached tokens and is appended to them.
  at::Tensor forward(const at::Tensor& x, const Rotary& rotary, KeyValueCache* cache = nullptr, const TokenPlaces& places = {}) const;

 private:
  int64_t heads_, kv_heads_, window_;
  bool fused_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, proj_;
};

// Computes down(activation(gate(x)) * up(x)) (Shazeer, "GLU Variants Improve Transformer", 2020). Parameters, without biases: gate, up,
// down.
class SwiGlu : public torch::nn::Module {
 public:
  SwiGlu(int64_t dim, int64_t hidden, Activation activation, double std, bool packed = true);

  at::Tensor forward(const at::Tensor& x) const;

 private:
  Activation activation_;
  std::shared_ptr<Linear> gate_, up_, down_;
};

// A pre-norm block: x + attention(norm(x)), then x + mlp(norm(x)).
class DecoderBlock : public torch::nn::Module {
 public:
  explicit DecoderBlock(const DecoderOptions& options);

  // Maps [N, tokens, dim] to [N, tokens, dim]. With a cache, x follows the cached tokens and is appended to them.
  at::Tensor forward(const at::Tensor& x, KeyValueCache* cache = nullptr, const TokenPlaces& places = {}) const;

 private:
  double dropout_;
  Activation activation_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_1_, ln_2_;
  std::shared_ptr<CausalSelfAttention> attention_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

// Describes the input of a decoder: token ids [batch, tokens].
InputSpec token_input(int64_t vocab_size, int64_t context);

// Returns a model of `net` with the weight file of `options`. The caller adds inputs and blocks.
template <class Net, class Options>
Model model_of(const std::string& name, const std::shared_ptr<Net>& net, const Options& options) {
  Model model;
  model.name = name;
  model.module = net;
  model.weights = options.weights;
  model.weights_strict = options.weights_strict;
  model.capturable = true;
  return model;
}

// Returns a model for a network that has embed(tokens), block(i, x), head(x) and `blocks`. embed and block may have the context as first
// argument.
template <class Net, class Options>
Model model_of_blocks(const std::string& name, const std::shared_ptr<Net>& net, const Options& options, bool packs_documents = false) {
  Model model = model_of(name, net, options);
  model.inputs = {token_input(options.vocab_size, options.context)};
  model.packs_documents = packs_documents;
  model.blocks.push_back({"embed", [net](const ForwardContext& context, const at::Tensor& tokens) {
                            if constexpr (requires { net->embed(context, tokens); })
                              return net->embed(context, tokens);
                            else
                              return net->embed(tokens);
                          }});
  for (size_t i = 0; i < net->blocks.size(); ++i)
    model.blocks.push_back({"blocks." + std::to_string(i), [net, i](const ForwardContext& context, const at::Tensor& x) {
                              if constexpr (requires { net->block(context, i, x); })
                                return net->block(context, i, x);
                              else
                                return net->block(i, x);
                            }});
  model.blocks.push_back({"head", [net](const at::Tensor& x) { return net->head(x); }});
  return chain_blocks(std::move(model));
}

// Returns a function that reads a sequence in pieces. In addition to the members that model_of_blocks() needs, the network must have
// embed(tokens, before, places), block(i, x, cache, places), context(), and padded(padding, before, count), which returns places. `padding`
// [N]: number of padding tokens at the beginning of each row; undefined: no padding.
template <class Net>
Continuation decoder_sequence(const std::shared_ptr<Net>& net, const at::Tensor& padding = {}) {
  auto caches = std::make_shared<std::vector<KeyValueCache>>(net->blocks.size(), KeyValueCache(net->context()));
  return [net, caches, padding](const at::Tensor& tokens) {
    const auto before = caches->front().tokens();
    const auto places = padding.defined() ? net->padded(padding, before, tokens.size(1)) : TokenPlaces{};
    at::Tensor x = net->embed(tokens, before, places);
    for (size_t i = 0; i < net->blocks.size(); ++i) x = net->block(i, x, &(*caches)[i], places);
    return net->head(x);
  };
}

// Returns a model of a network that has the members that decoder_sequence() needs. Its overloads of embed and block with the context as
// first argument must use packed_positions() and packed_places().
template <class Net, class Options>
Model decoder_model(const std::string& name, const std::shared_ptr<Net>& net, const Options& options) {
  Model model = model_of_blocks(name, net, options, /*packs_documents=*/true);
  model.start_sequence = [net] { return decoder_sequence(net); };
  model.start_batch = [net](const at::Tensor& padding) { return decoder_sequence(net, padding); };
  return model;
}

}  // namespace npu_train::detail
