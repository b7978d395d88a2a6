#include "npu_train/models/bert.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>

#include <vector>

#include "models/blocks/activation.hpp"
#include "models/blocks/decoder.hpp"
#include "models/blocks/encoder.hpp"
#include "models/blocks/layer_norm.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/packed_linear.hpp"

namespace npu_train {
namespace {

constexpr double kBertStd = 0.02;
constexpr const char *kMaskInput = "attention_mask", *kTypesInput = "token_types";

struct BertBlocks : torch::nn::Module {
  BertBlocks() : torch::nn::Module("Blocks") {}
};

int64_t hidden_of(const BertOptions& o) { return o.hidden > 0 ? o.hidden : 4 * o.dim; }

// A post-norm block: norm(x + attention(x)), then norm(x + mlp(x)).
class BertBlock : public torch::nn::Module {
 public:
  explicit BertBlock(const BertOptions& o) : torch::nn::Module("BertBlock"), dropout_(o.dropout) {
    attention_ = register_module("attention", std::make_shared<detail::SelfAttention>(detail::SelfAttentionOptions{
                                                  .dim = o.dim, .heads = o.heads, .dropout = o.dropout, .std = kBertStd}));
    ln_1_ = detail::add_layer_norm(*this, "ln_1", o.dim, o.norm_eps);
    const auto activation = detail::activation_of(o.activation, "bert");
    mlp_ = register_module("mlp", std::make_shared<detail::Mlp>(o.dim, hidden_of(o), activation, kBertStd, kBertStd));
    ln_2_ = detail::add_layer_norm(*this, "ln_2", o.dim, o.norm_eps);
  }

  // Maps [N, tokens, dim] to [N, tokens, dim]; `keys` as in SelfAttention.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& keys) const {
    const auto branch = [this](const at::Tensor& t) { return npu_train::dropout(t, dropout_, is_training()); };
    const auto attend = [&](const at::Tensor& t) { return attention_->forward(t, keys); };
    const at::Tensor y = detail::layer_norm(x + branch(in_layer("attention", x, attend)), *ln_1_);
    return detail::layer_norm(y + branch(mlp_->forward(y)), *ln_2_);
  }

 private:
  double dropout_;
  std::shared_ptr<detail::SelfAttention> attention_;
  std::shared_ptr<detail::Mlp> mlp_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_1_, ln_2_;
};

// Predicts the token at each position from its vector. Parameters: fc, ln, bias [vocab_size]; the output matrix is the token embedding.
class MaskedLanguageHead : public torch::nn::Module {
 public:
  MaskedLanguageHead(const BertOptions& o, std::shared_ptr<detail::Embedding> tokens)
      : torch::nn::Module("MaskedLanguageHead"),
        tokens_(std::move(tokens)),
        activation_(detail::activation_of(o.activation, "bert")),
        bias_(register_parameter("bias", at::empty({o.vocab_size}))) {
    fc_ = detail::normal_linear(*this, "fc", o.dim, o.dim, kBertStd);
    ln_ = detail::add_layer_norm(*this, "ln", o.dim, o.norm_eps);
    init::zeros_(bias_);
  }

  at::Tensor forward(const at::Tensor& x) const {
    return packed_linear(detail::layer_norm(detail::activated(fc_->forward(x), activation_), *ln_), tokens_->weight, bias_);
  }

 private:
  std::shared_ptr<detail::Embedding> tokens_;  // the embedding, which the network registers
  detail::Activation activation_;
  at::Tensor bias_;
  std::shared_ptr<Linear> fc_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_;
};

class Bert : public torch::nn::Module {
 public:
  explicit Bert(const BertOptions& o)
      : torch::nn::Module("Bert"),
        vocab_size_(o.vocab_size),
        context_(o.context),
        token_types_(o.token_types),
        heads_on_text_(o.num_classes > 0),
        dropout_(o.dropout) {
    token_embedding_ = register_module("token_embedding", std::make_shared<detail::Embedding>(o.vocab_size, o.dim, kBertStd));
    position_embedding_ = register_module("position_embedding", std::make_shared<detail::Embedding>(o.context, o.dim, kBertStd));
    type_embedding_ = register_module("type_embedding", std::make_shared<detail::Embedding>(o.token_types, o.dim, kBertStd));
    ln_ = detail::add_layer_norm(*this, "ln", o.dim, o.norm_eps);
    auto list = register_module("blocks", std::make_shared<BertBlocks>());
    for (int64_t i = 0; i < o.layers; ++i) blocks.push_back(list->register_module(std::to_string(i), std::make_shared<BertBlock>(o)));
    if (heads_on_text_) {
      pooler_ = detail::normal_linear(*this, "pooler", o.dim, o.dim, kBertStd);
      classifier_ = detail::normal_linear(*this, "classifier", o.dim, o.num_classes, kBertStd);
    } else {
      mlm_ = register_module("mlm", std::make_shared<MaskedLanguageHead>(o, token_embedding_));
    }
  }

  // Maps tokens [N, T] to vectors [N, T, dim].
  at::Tensor embed(const ForwardContext& context, const at::Tensor& tokens) const {
    detail::check_tokens("bert", tokens, 0, context_, vocab_size_);
    const at::Tensor positions = position_embedding_->weight.narrow(0, 0, tokens.size(1));
    const at::Tensor x = detail::layer_norm(token_embedding_->forward(tokens) + types(context, tokens) + positions, *ln_);
    return npu_train::dropout(x, dropout_, is_training());
  }

  at::Tensor block(const ForwardContext& context, size_t i, const at::Tensor& x) const {
    const at::Tensor mask = context.get(kMaskInput);
    if (!mask.defined()) return blocks[i]->forward(x, {});
    check_like(kMaskInput, mask, x);
    return blocks[i]->forward(x, mask.ne(0).unsqueeze(1).unsqueeze(1));
  }

  at::Tensor head(const at::Tensor& x) const {
    if (!heads_on_text_) return mlm_->forward(x);
    const at::Tensor text = at::tanh(pooler_->forward(x.select(1, 0)));
    return classifier_->forward(npu_train::dropout(text, dropout_, is_training()));
  }

  std::vector<std::shared_ptr<BertBlock>> blocks;

 private:
  static void check_like(const char* name, const at::Tensor& field, const at::Tensor& tokens) {
    check(field.dim() == 2 && field.scalar_type() == at::kLong && field.sizes() == tokens.sizes().slice(0, 2), ErrorKind::Usage, "bert",
          name, " is ", c10::toString(field.scalar_type()), " ", field.sizes(), "; this batch requires Long ", tokens.sizes().slice(0, 2));
  }

  // Returns the vectors of the tokens' types, [N, T, dim]; if no types are given, the vector of type 0, [dim].
  at::Tensor types(const ForwardContext& context, const at::Tensor& tokens) const {
    const at::Tensor given = context.get(kTypesInput);
    if (!given.defined()) return type_embedding_->weight.select(0, 0);
    check_like(kTypesInput, given, tokens);
    detail::check_ids("bert", "type", given, token_types_, "model.token_types");
    return type_embedding_->forward(given);
  }

  int64_t vocab_size_, context_, token_types_;
  bool heads_on_text_;
  double dropout_;
  std::shared_ptr<detail::Embedding> token_embedding_, position_embedding_, type_embedding_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_;
  std::shared_ptr<MaskedLanguageHead> mlm_;
  std::shared_ptr<Linear> pooler_, classifier_;
};

void check_bert_options(const BertOptions& o) {
  check(o.vocab_size > 0 && o.context > 0 && o.layers > 0 && o.heads > 0 && o.dim > 0 && o.token_types > 0 && o.hidden >= 0 &&
            o.num_classes >= 0 && o.norm_eps >= 0,
        ErrorKind::Usage, "bert",
        "vocab_size, context, layers, heads, dim and token_types must be at least 1, hidden, num_classes and norm_eps at least 0");
  check(o.dim % o.heads == 0, ErrorKind::Usage, "bert", "dim ", o.dim, " is not a multiple of heads ", o.heads);
  check(o.dropout >= 0.0 && o.dropout < 1.0, ErrorKind::Usage, "bert", "dropout is ", o.dropout, "; allowed: at least 0 and below 1");
}

std::vector<InputSpec> bert_inputs(const BertOptions& o) {
  auto tokens = detail::token_input(o.vocab_size, o.context);
  auto mask = tokens, types = tokens;
  mask.name = kMaskInput, mask.range = std::pair(1.0, 2.0);  // all 1, because examples have no padding
  types.name = kTypesInput, types.range = std::pair(0.0, static_cast<double>(o.token_types));
  return {tokens, mask, types};
}

}  // namespace

const ConfigTable<BertOptions>& BertOptions::config_table() {
  using T = BertOptions;
  static const auto table =
      ConfigTable<T>("model bert")
          .field("vocab_size", &T::vocab_size, "number of different tokens", between(1, 1 << 24))
          .field("context", &T::context, "tokens of the longest input", between(1, 1 << 20))
          .field("layers", &T::layers, "blocks", between(1, 4096))
          .field("heads", &T::heads, "number of attention heads", between(1, 4096))
          .field("dim", &T::dim, "width of a token; must be a multiple of heads", between(1, 1 << 16))
          .field("hidden", &T::hidden, "width of the MLP; 0: four times dim", between(0, 1 << 20))
          .field("activation", &T::activation, "of the MLPs and of the head for masked tokens", one_of(detail::activation_names()))
          .field("norm_eps", &T::norm_eps, "added to the variance in the norms", between(0, 1))
          .field("token_types", &T::token_types, "number of different types of tokens", between(1, 1 << 16))
          .field("num_classes", &T::num_classes, "classes of a text; 0: the head predicts masked tokens", between(0, 1 << 24))
          .field("dropout", &T::dropout,
                 "rate after the embeddings, on the attention weights, after both branches and before the classifier", between(0, 0.99))
          .field("weights", &T::weights, "file with initial weights: safetensors, .pth or a checkpoint")
          .field("weights_strict", &T::weights_strict,
                 "true: weights of another network are an error; false: the matching tensors are loaded")
          .synonym("pretrained", "weights")
          .synonym("max_position_embeddings", "context")
          .synonym("max_seq_len", "context")
          .synonym("num_hidden_layers", "layers")
          .synonym("num_layers", "layers")
          .synonym("num_attention_heads", "heads")
          .synonym("num_heads", "heads")
          .synonym("hidden_size", "dim")
          .synonym("embed_dim", "dim")
          .synonym("intermediate_size", "hidden")
          .synonym("type_vocab_size", "token_types")
          .synonym("num_labels", "num_classes")
          .synonym("hidden_dropout_prob", "dropout")
          .synonym("hidden_act", "activation")
          .synonym("layer_norm_eps", "norm_eps");
  return table;
}

BertOptions bert_base_options() { return {}; }

BertOptions bert_tiny_options() { return {.vocab_size = 258, .context = 64, .layers = 2, .heads = 2, .dim = 64, .dropout = 0}; }

Model bert(const BertOptions& options, const std::string& name) {
  check_bert_options(options);
  const auto net = std::make_shared<Bert>(options);
  Model model = detail::model_of_blocks(name, net, options);
  model.inputs = bert_inputs(options);
  model.num_classes = options.num_classes;
  if (options.num_classes > 0) {
    model.head = "classifier";
    model.blocks.back().modules = {"pooler", "classifier"};
  }
  return chain_blocks(std::move(model));  // chained again, because its forward now receives all inputs
}

}  // namespace npu_train
