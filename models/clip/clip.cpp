#include "npu_train/models/clip.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/blocks/activation.hpp"
#include "models/blocks/decoder.hpp"
#include "models/blocks/encoder.hpp"
#include "models/blocks/layer_norm.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/layers.hpp"

namespace npu_train {
namespace {

constexpr const char* kClip = "clip";

struct TowerBlocks : torch::nn::Module {
  TowerBlocks() : torch::nn::Module("Blocks") {}
};

struct TowerOptions {
  int64_t dim = 0, heads = 0, layers = 0, hidden = 0;
  detail::Activation activation;
  double norm_eps = 0;
  bool causal = false;
};

double inverse_root(int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); }

detail::PreNormOptions block_of(const TowerOptions& o) {
  const double std = inverse_root(o.dim), residual_std = std * inverse_root(2 * o.layers);
  return {.attention = {.dim = o.dim, .heads = o.heads, .causal = o.causal, .std = std, .residual_std = residual_std},
          .hidden = o.hidden > 0 ? o.hidden : 4 * o.dim,
          .activation = o.activation,
          .norm_eps = o.norm_eps,
          .mlp_std = inverse_root(2 * o.dim),
          .mlp_residual_std = residual_std};
}

TowerOptions vision_of(const ClipOptions& o) {
  return {.dim = o.vision_dim,
          .heads = o.vision_heads,
          .layers = o.vision_layers,
          .hidden = o.vision_hidden,
          .activation = detail::activation_of(o.activation, kClip),
          .norm_eps = o.norm_eps};
}

TowerOptions text_of(const ClipOptions& o) {
  return {.dim = o.text_dim,
          .heads = o.text_heads,
          .layers = o.text_layers,
          .hidden = o.text_hidden,
          .activation = detail::activation_of(o.activation, kClip),
          .norm_eps = o.norm_eps,
          .causal = true};
}

// The blocks of a tower, and the projection of its result into the common space.
class Tower : public torch::nn::Module {
 public:
  std::vector<std::shared_ptr<detail::PreNormBlock>> blocks;

 protected:
  Tower(const std::string& name, const TowerOptions& o, int64_t projection) : torch::nn::Module(name) {
    auto list = register_module("blocks", std::make_shared<TowerBlocks>());
    for (int64_t i = 0; i < o.layers; ++i)
      blocks.push_back(list->register_module(std::to_string(i), std::make_shared<detail::PreNormBlock>(block_of(o))));
    projection_ = detail::normal_linear(*this, "projection", o.dim, projection, inverse_root(o.dim), /*bias=*/false);
  }

  // Projects vectors [N, dim] to features [N, projection] of length 1, in fp32.
  at::Tensor project(const at::Tensor& x) const {
    const at::Tensor features = projection_->forward(x).to(at::kFloat);
    return features / features.pow(2).sum(-1, /*keepdim=*/true).sqrt();
  }

 private:
  std::shared_ptr<Linear> projection_;
};

class VisionTower : public Tower {
 public:
  explicit VisionTower(const ClipOptions& o)
      : Tower("VisionTower", vision_of(o), o.projection),
        tokens_(*this, {.network = kClip,
                        .image_size = o.image_size,
                        .patch_size = o.patch_size,
                        .dim = o.vision_dim,
                        .class_std = inverse_root(o.vision_dim),
                        .patch_std = inverse_root(3 * o.patch_size * o.patch_size),
                        .position_std = inverse_root(o.vision_dim)}) {
    ln_pre_ = detail::add_layer_norm(*this, "ln_pre", o.vision_dim, o.norm_eps);
    ln_post_ = detail::add_layer_norm(*this, "ln_post", o.vision_dim, o.norm_eps);
  }

  at::Tensor embed(const at::Tensor& images) const { return detail::layer_norm(tokens_(images), *ln_pre_); }
  // Returns the features of an image from the vectors of all its tokens.
  at::Tensor head(const at::Tensor& x) const { return project(detail::layer_norm(x.select(1, 0), *ln_post_)); }

 private:
  detail::ImageTokens tokens_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_pre_, ln_post_;
};

class TextTower : public Tower {
 public:
  explicit TextTower(const ClipOptions& o)
      : Tower("TextTower", text_of(o), o.projection), vocab_size_(o.vocab_size), context_(o.context), end_token_(o.end_token) {
    token_embedding_ = register_module("token_embedding", std::make_shared<detail::Embedding>(o.vocab_size, o.text_dim, 0.02));
    position_embedding_ = register_module("position_embedding", std::make_shared<detail::Embedding>(o.context, o.text_dim, 0.01));
    ln_ = detail::add_layer_norm(*this, "ln", o.text_dim, o.norm_eps);
  }

  at::Tensor embed(const at::Tensor& tokens) const {
    detail::check_tokens(kClip, tokens, 0, context_, vocab_size_);
    return token_embedding_->forward(tokens) + position_embedding_->weight.narrow(0, 0, tokens.size(1));
  }

  // Returns the features of a text from the vectors x of all `tokens`.
  at::Tensor head(const at::Tensor& x, const at::Tensor& tokens) const {
    // argmax finds the first maximum, which is the first end_token, or the first token if there is no end_token.
    const at::Tensor end = (end_token_ < 0 ? tokens : tokens.eq(end_token_)).to(at::kInt).argmax(1);
    const at::Tensor last = x.gather(1, end.unsqueeze(1).unsqueeze(2).expand({-1, 1, x.size(2)})).squeeze(1);
    return project(detail::layer_norm(last, *ln_));
  }

 private:
  int64_t vocab_size_, context_, end_token_;
  std::shared_ptr<detail::Embedding> token_embedding_, position_embedding_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_;
};

class Clip : public torch::nn::Module {
 public:
  explicit Clip(const ClipOptions& o) : torch::nn::Module("Clip") {
    vision = register_module("vision", std::make_shared<VisionTower>(o));
    text = register_module("text", std::make_shared<TextTower>(o));
    logit_scale_ = register_parameter("logit_scale", at::scalar_tensor(std::log(1 / 0.07), at::kFloat));
  }

  at::Tensor scale() const { return logit_scale_.to(at::kFloat).exp(); }

  std::shared_ptr<VisionTower> vision;
  std::shared_ptr<TextTower> text;

 private:
  at::Tensor logit_scale_;
};

void check_clip_options(const ClipOptions& o) {
  check(std::min({o.image_size, o.patch_size, o.vision_layers, o.vision_heads, o.vision_dim, o.vocab_size, o.context, o.text_layers,
                  o.text_heads, o.text_dim, o.projection}) > 0 &&
            o.end_token >= -1 && std::min(o.vision_hidden, o.text_hidden) >= 0 && o.norm_eps >= 0,
        ErrorKind::Usage, kClip,
        "every size must be at least 1, vision_hidden, text_hidden and norm_eps at least 0, and end_token at least -1");
  check(o.max_scale == 0 || o.max_scale >= 1, ErrorKind::Usage, kClip, "max_scale is ", o.max_scale,
        "; allowed: 0 (no limit), or at least 1");
  check(o.image_size % o.patch_size == 0, ErrorKind::Usage, kClip, "image_size ", o.image_size, " is not a multiple of patch_size ",
        o.patch_size);
  check(o.vision_dim % o.vision_heads == 0, ErrorKind::Usage, kClip, "vision_dim ", o.vision_dim, " is not a multiple of vision_heads ",
        o.vision_heads);
  check(o.text_dim % o.text_heads == 0, ErrorKind::Usage, kClip, "text_dim ", o.text_dim, " is not a multiple of text_heads ",
        o.text_heads);
  check(o.end_token < o.vocab_size, ErrorKind::Usage, kClip, "end_token is ", o.end_token, "; allowed: -1 to ", o.vocab_size - 1,
        " (vocab_size - 1)");
  check(o.tower == "both" || o.tower == "image" || o.tower == "text", ErrorKind::Usage, kClip, "tower '", o.tower,
        "'; allowed: both, image, text");
}

}  // namespace

const ConfigTable<ClipOptions>& ClipOptions::config_table() {
  using T = ClipOptions;
  static const auto table =
      ConfigTable<T>("model clip")
          .field("image_size", &T::image_size, "pixels of a side; must be a multiple of patch_size", between(1, 1 << 14))
          .field("patch_size", &T::patch_size, "pixels of a side of a patch", between(1, 1 << 14))
          .field("vision_layers", &T::vision_layers, "blocks of the image tower", between(1, 4096))
          .field("vision_heads", &T::vision_heads, "attention heads of the image tower", between(1, 4096))
          .field("vision_dim", &T::vision_dim, "width of the image tower; must be a multiple of vision_heads", between(1, 1 << 16))
          .field("vision_hidden", &T::vision_hidden, "width of its MLPs; 0: four times vision_dim", between(0, 1 << 18))
          .field("vocab_size", &T::vocab_size, "number of different tokens", between(1, 1 << 24))
          .field("context", &T::context, "tokens of the longest text", between(1, 1 << 20))
          .field("text_layers", &T::text_layers, "blocks of the text tower", between(1, 4096))
          .field("text_heads", &T::text_heads, "attention heads of the text tower", between(1, 4096))
          .field("text_dim", &T::text_dim, "width of the text tower; must be a multiple of text_heads", between(1, 1 << 16))
          .field("text_hidden", &T::text_hidden, "width of its MLPs; 0: four times text_dim", between(0, 1 << 18))
          .field("activation", &T::activation, "of the MLPs; gelu in LAION's networks", one_of(detail::activation_names()))
          .field("norm_eps", &T::norm_eps, "added to the variance in the norms", between(0, 1))
          .field("end_token", &T::end_token, "a text is read at its first token of this number; -1: at the first of its largest token",
                 between(-1, 1 << 24))
          .field("projection", &T::projection, "size of the space of both features", between(1, 1 << 16))
          .field("max_scale", &T::max_scale,
                 "the factor of the products stays at most this: the parameter is clamped after each step; 0: no limit", between(0, 1e9))
          .field("tower", &T::tower, "image, text: only this tower is called, for an export", one_of({"both", "image", "text"}))
          .field("weights", &T::weights, "file with initial weights: safetensors, .pth or a checkpoint")
          .field("weights_strict", &T::weights_strict,
                 "true: weights of another network are an error; false: the matching tensors are loaded")
          .synonym("pretrained", "weights")
          .synonym("projection_dim", "projection")
          .synonym("embed_dim", "projection")
          .synonym("max_position_embeddings", "context")
          .synonym("eos_token_id", "end_token")
          .synonym("hidden_act", "activation")
          .synonym("layer_norm_eps", "norm_eps");
  return table;
}

ClipOptions clip_vit_b32_options() { return {}; }

ClipOptions clip_tiny_options() {
  return {.image_size = 32,
          .patch_size = 8,
          .vision_layers = 2,
          .vision_heads = 2,
          .vision_dim = 64,
          .vocab_size = 256,
          .context = 64,
          .text_layers = 2,
          .text_heads = 2,
          .text_dim = 64,
          .end_token = 0,
          .projection = 32};
}

namespace {

constexpr const char* kTexts = "tokens";  // name of the text tower's input

template <class T>
void add_tower(Model& model, const std::string& name, const std::shared_ptr<T>& tower) {
  for (size_t i = 0; i < tower->blocks.size(); ++i)
    model.blocks.push_back(
        {name + ".blocks." + std::to_string(i), [tower, i](const at::Tensor& x) { return tower->blocks[i]->forward(x); }});
}

void add_vision(Model& model, const std::shared_ptr<Clip>& net) {
  model.blocks.push_back({"vision.embed", [net](const at::Tensor& images) { return net->vision->embed(images); }});
  add_tower(model, "vision", net->vision);
  model.blocks.push_back({"vision.head", [net](const ForwardContext& context, const at::Tensor& x) {
                            at::Tensor features = net->vision->head(x);
                            context.give("image_features", features);
                            return features;
                          }});
}

// Adds the text tower, which reads the input `name` instead of the previous block's result. If both towers run, it also returns the scale.
void add_text(Model& model, const std::shared_ptr<Clip>& net, const std::string& name) {
  const auto texts = [name](const ForwardContext& context) {
    const at::Tensor tokens = context.get(name);
    check(tokens.defined(), ErrorKind::Usage, kClip, "the batch has no '", name, "'; hint: use data with texts, such as image_text");
    return tokens;
  };
  model.blocks.push_back(
      {"text.embed", [net, texts](const ForwardContext& context, const at::Tensor&) { return net->text->embed(texts(context)); }});
  add_tower(model, "text", net->text);
  model.blocks.push_back({"text.head", [net, texts, name](const ForwardContext& context, const at::Tensor& x) {
                            at::Tensor features = net->text->head(x, texts(context));
                            context.give("text_features", features);
                            if (name == kTexts) context.give("scale", net->scale());
                            return features;
                          }});
}

}  // namespace

Model clip(const ClipOptions& options, const std::string& name) {
  check_clip_options(options);
  const auto net = std::make_shared<Clip>(options);
  Model model = detail::model_of(name, net, options);
  if (options.max_scale > 0) model.limits.push_back({.name = "logit_scale", .least = 0, .most = std::log(options.max_scale)});
  if (options.tower != "text") {
    model.inputs.push_back(image_input(3, options.image_size, /*fixed=*/true));
    add_vision(model, net);
  }
  if (options.tower != "image") {
    model.inputs.push_back(detail::token_input(options.vocab_size, options.context));
    if (options.tower == "both") model.inputs.back().name = kTexts;
    add_text(model, net, model.inputs.back().name);
  }
  model.forward = [](const Batch&) { return Outputs(); };  // takes a batch, because its outputs have names
  return chain_blocks(std::move(model));
}

}  // namespace npu_train
