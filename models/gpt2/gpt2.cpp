#include "npu_train/models/gpt2.hpp"

#include <cmath>
#include <vector>

#include "models/blocks/activation.hpp"
#include "models/blocks/decoder.hpp"
#include "models/blocks/layer_norm.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/layers.hpp"

namespace npu_train {
namespace {

constexpr double kGpt2Std = 0.02;

struct Gpt2Blocks : torch::nn::Module {
  Gpt2Blocks() : torch::nn::Module("Blocks") {}
};

class Gpt2 : public torch::nn::Module {
 public:
  explicit Gpt2(const Gpt2Options& o) : torch::nn::Module("Gpt2"), vocab_size_(o.vocab_size), context_(o.context), dropout_(o.dropout) {
    token_embedding_ = register_module("token_embedding", std::make_shared<detail::Embedding>(o.vocab_size, o.dim, kGpt2Std));
    position_embedding_ = register_module("position_embedding", std::make_shared<detail::Embedding>(o.context, o.dim, kGpt2Std));
    // Each block adds two branches to the residual stream; this factor keeps the variance of the stream independent of their number.
    const double residual_std = kGpt2Std / std::sqrt(2.0 * static_cast<double>(o.layers));
    auto list = register_module("blocks", std::make_shared<Gpt2Blocks>());
    for (int64_t i = 0; i < o.layers; ++i)
      blocks.push_back(list->register_module(std::to_string(i), std::make_shared<detail::DecoderBlock>(detail::DecoderOptions{
                                                                    .dim = o.dim,
                                                                    .heads = o.heads,
                                                                    .hidden = o.hidden > 0 ? o.hidden : 4 * o.dim,
                                                                    .activation = detail::activation_of(o.activation, "gpt2"),
                                                                    .dropout = o.dropout,
                                                                    .norm_eps = o.norm_eps,
                                                                    .bias = o.bias,
                                                                    .std = kGpt2Std,
                                                                    .residual_std = residual_std})));
    ln_ = detail::add_layer_norm(*this, "ln", o.dim, o.norm_eps, o.bias);
    if (!o.tie_embeddings) head_ = detail::normal_linear(*this, "head", o.dim, o.vocab_size, kGpt2Std, /*bias=*/false);
  }

  // Maps tokens [N, T] after `before` earlier ones to vectors [N, T, dim].
  at::Tensor embed(const at::Tensor& tokens, int64_t before = 0, const detail::TokenPlaces& places = {}) {
    detail::check_tokens("gpt2", tokens, before, context_, vocab_size_);
    const at::Tensor positions = places.positions.defined() ? position_embedding_->forward(places.positions)
                                                            : position_embedding_->weight.narrow(0, before, tokens.size(1));
    return npu_train::dropout(token_embedding_->forward(tokens) + positions, dropout_, is_training());
  }
  at::Tensor embed(const ForwardContext& context, const at::Tensor& tokens) {
    return embed(tokens, 0, {.positions = detail::packed_positions(context, "gpt2", tokens, context_)});
  }

  at::Tensor block(size_t i, const at::Tensor& x, detail::KeyValueCache* cache = nullptr, const detail::TokenPlaces& places = {}) {
    return blocks[i]->forward(x, cache, places);
  }
  at::Tensor block(const ForwardContext& context, size_t i, const at::Tensor& x) {
    return block(i, x, nullptr, detail::packed_places(context));
  }

  int64_t context() const { return context_; }  // tokens of the longest sequence

  static detail::TokenPlaces padded(const at::Tensor& padding, int64_t before, int64_t count) {
    return detail::padded_places(padding, before, count);
  }

  at::Tensor head(const at::Tensor& x) {
    const at::Tensor y = detail::layer_norm(x, *ln_);
    return head_ != nullptr ? head_->forward(y) : token_embedding_->products(y);
  }

  std::vector<std::shared_ptr<detail::DecoderBlock>> blocks;

 private:
  int64_t vocab_size_, context_;
  double dropout_;
  std::shared_ptr<detail::Embedding> token_embedding_, position_embedding_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_;
  std::shared_ptr<Linear> head_;  // nullptr if the token embedding is the head
};

void check_gpt2_options(const Gpt2Options& o) {
  check(o.vocab_size > 0 && o.context > 0 && o.layers > 0 && o.heads > 0 && o.dim > 0, ErrorKind::Usage, "gpt2",
        "vocab_size, context, layers, heads and dim must be at least 1");
  check(o.dim % o.heads == 0, ErrorKind::Usage, "gpt2", "dim ", o.dim, " is not a multiple of heads ", o.heads);
  check(o.hidden >= 0 && o.norm_eps >= 0, ErrorKind::Usage, "gpt2", "hidden is ", o.hidden, " and norm_eps ", o.norm_eps,
        "; both must be at least 0");
  check(o.dropout >= 0.0 && o.dropout < 1.0, ErrorKind::Usage, "gpt2", "dropout is ", o.dropout, "; allowed: at least 0 and below 1");
}

}  // namespace

const ConfigTable<Gpt2Options>& Gpt2Options::config_table() {
  using T = Gpt2Options;
  static const auto table =
      ConfigTable<T>("model gpt2")
          .field("vocab_size", &T::vocab_size, "number of different tokens", between(1, 1 << 24))
          .field("context", &T::context, "tokens of the longest input", between(1, 1 << 20))
          .field("layers", &T::layers, "blocks", between(1, 4096))
          .field("heads", &T::heads, "number of attention heads", between(1, 4096))
          .field("dim", &T::dim, "width of a token; must be a multiple of heads", between(1, 1 << 16))
          .field("hidden", &T::hidden, "width of the MLP; 0: four times dim", between(0, 1 << 20))
          .field("activation", &T::activation, "of the MLP", one_of(detail::activation_names()))
          .field("norm_eps", &T::norm_eps, "added to the variance in the norms", between(0, 1))
          .field("tie_embeddings", &T::tie_embeddings, "the head uses the token embedding")
          .field("bias", &T::bias, "biases in the linear layers and in the norms")
          .field("dropout", &T::dropout, "rate after the embeddings, on the attention weights and after both branches", between(0, 0.99))
          .field("weights", &T::weights, "file with initial weights: safetensors, .pth or a checkpoint")
          .field("weights_strict", &T::weights_strict,
                 "true: weights of another network are an error; false: the matching tensors are loaded")
          .synonym("pretrained", "weights")
          .synonym("block_size", "context")
          .synonym("n_positions", "context")
          .synonym("n_ctx", "context")
          .synonym("n_layer", "layers")
          .synonym("num_layers", "layers")
          .synonym("n_head", "heads")
          .synonym("num_heads", "heads")
          .synonym("n_embd", "dim")
          .synonym("embed_dim", "dim")
          .synonym("hidden_dim", "dim")
          .synonym("n_inner", "hidden")
          .synonym("activation_function", "activation")
          .synonym("layer_norm_epsilon", "norm_eps")
          .synonym("tie_word_embeddings", "tie_embeddings");
  return table;
}

Gpt2Options gpt2_124m_options() { return {}; }

Gpt2Options gpt2_tiny_options() { return {.vocab_size = 256, .context = 64, .layers = 2, .heads = 2, .dim = 64}; }

Model gpt2(const Gpt2Options& options, const std::string& name) {
  check_gpt2_options(options);
  return detail::decoder_model(name, std::make_shared<Gpt2>(options), options);
}

}  // namespace npu_train
