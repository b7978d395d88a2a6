#include "npu_train/models/clip.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "clip_options.hpp"
#include "decoder.hpp"
#include "encoder.hpp"
#include "layer_norm.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/layers.hpp"

namespace npu_train {
namespace {

constexpr double kClipNormEps = 1e-5;
constexpr const char* kClip = "clip";

struct TowerBlocks : torch::nn::Module {
  TowerBlocks() : torch::nn::Module("Blocks") {}
};

struct TowerOptions {
  int64_t dim = 0, heads = 0, layers = 0;
  bool causal = false;
};

double inverse_root(int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); }

// x + attention(norm(x)), then x + mlp(norm(x)).
class TowerBlock : public torch::nn::Module {
 public:
  explicit TowerBlock(const TowerOptions& o) : torch::nn::Module("TowerBlock") {
    const double std = inverse_root(o.dim), residual_std = std * inverse_root(2 * o.layers);
    ln_1_ = detail::add_layer_norm(*this, "ln_1", o.dim, kClipNormEps);
    attention_ =
        register_module("attention", std::make_shared<detail::SelfAttention>(detail::SelfAttentionOptions{
                                         .dim = o.dim, .heads = o.heads, .causal = o.causal, .std = std, .residual_std = residual_std}));
    ln_2_ = detail::add_layer_norm(*this, "ln_2", o.dim, kClipNormEps);
    mlp_ = register_module(
        "mlp", std::make_shared<detail::Mlp>(o.dim, 4 * o.dim, detail::Activation::QuickGelu, inverse_root(2 * o.dim), residual_std));
  }

  at::Tensor forward(const at::Tensor& x) const {
    const auto attend = [this](const at::Tensor& t) { return attention_->forward(t); };
    const at::Tensor y = x + in_layer("attention", detail::layer_norm(x, *ln_1_), attend);
    return y + mlp_->forward(detail::layer_norm(y, *ln_2_));
  }

 private:
  std::shared_ptr<torch::nn::LayerNormImpl> ln_1_, ln_2_;
  std::shared_ptr<detail::SelfAttention> attention_;
  std::shared_ptr<detail::Mlp> mlp_;
};

// The blocks of a tower, and the projection of what they give into the common space.
class Tower : public torch::nn::Module {
 protected:
  Tower(const std::string& name, const TowerOptions& o, int64_t projection) : torch::nn::Module(name) {
    auto list = register_module("blocks", std::make_shared<TowerBlocks>());
    for (int64_t i = 0; i < o.layers; ++i) blocks_.push_back(list->register_module(std::to_string(i), std::make_shared<TowerBlock>(o)));
    projection_ = detail::normal_linear(*this, "projection", o.dim, projection, inverse_root(o.dim), /*bias=*/false);
  }

  at::Tensor run(at::Tensor x) const {
    for (size_t i = 0; i < blocks_.size(); ++i)
      x = in_layer("blocks." + std::to_string(i), x, [&](const at::Tensor& t) { return blocks_[i]->forward(t); });
    return x;
  }

  // Vectors [N, dim] to features [N, projection] of length 1, in fp32.
  at::Tensor project(const at::Tensor& x) const {
    const at::Tensor features = projection_->forward(x).to(at::kFloat);
    return features / features.pow(2).sum(-1, /*keepdim=*/true).sqrt();
  }

 private:
  std::vector<std::shared_ptr<TowerBlock>> blocks_;
  std::shared_ptr<Linear> projection_;
};

class VisionTower : public Tower {
 public:
  explicit VisionTower(const ClipOptions& o)
      : Tower("VisionTower", {.dim = o.vision_dim, .heads = o.vision_heads, .layers = o.vision_layers}, o.projection), size_(o.image_size) {
    const int64_t side = o.image_size / o.patch_size;
    class_embedding_ = register_parameter("class_embedding", at::empty({o.vision_dim}));
    init::normal_(class_embedding_, inverse_root(o.vision_dim));
    patch_ = register_module(
        "patch", std::make_shared<Conv2d>(Conv2d::Options{.in = 3, .out = o.vision_dim, .kernel = o.patch_size, .stride = o.patch_size}));
    init::normal_(patch_->weight, inverse_root(3 * o.patch_size * o.patch_size));
    position_embedding_ = register_module("position_embedding",
                                          std::make_shared<detail::Embedding>(side * side + 1, o.vision_dim, inverse_root(o.vision_dim)));
    ln_pre_ = detail::add_layer_norm(*this, "ln_pre", o.vision_dim, kClipNormEps);
    ln_post_ = detail::add_layer_norm(*this, "ln_post", o.vision_dim, kClipNormEps);
  }

  at::Tensor forward(const at::Tensor& x) const {
    check(x.dim() == 4 && x.size(1) == 3 && x.size(2) == size_ && x.size(3) == size_, ErrorKind::Usage, kClip, "images of shape ",
          x.sizes(), "; this network requires [N, 3, ", size_, ", ", size_, "]: set image_size, or resize the images");
    const at::Tensor patches = patch_->forward(x).flatten(2).transpose(1, 2);
    const at::Tensor first = class_embedding_.to(patches.scalar_type()).expand({x.size(0), 1, -1});
    const at::Tensor tokens = at::cat({first, patches}, 1) + position_embedding_->weight;
    return project(detail::layer_norm(run(detail::layer_norm(tokens, *ln_pre_)).select(1, 0), *ln_post_));
  }

 private:
  int64_t size_;
  at::Tensor class_embedding_;
  std::shared_ptr<Conv2d> patch_;
  std::shared_ptr<detail::Embedding> position_embedding_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_pre_, ln_post_;
};

class TextTower : public Tower {
 public:
  explicit TextTower(const ClipOptions& o)
      : Tower("TextTower", {.dim = o.text_dim, .heads = o.text_heads, .layers = o.text_layers, .causal = true}, o.projection),
        vocab_size_(o.vocab_size),
        context_(o.context),
        end_token_(o.end_token) {
    token_embedding_ = register_module("token_embedding", std::make_shared<detail::Embedding>(o.vocab_size, o.text_dim, 0.02));
    position_embedding_ = register_module("position_embedding", std::make_shared<detail::Embedding>(o.context, o.text_dim, 0.01));
    ln_ = detail::add_layer_norm(*this, "ln", o.text_dim, kClipNormEps);
  }

  at::Tensor forward(const at::Tensor& tokens) const {
    detail::check_tokens(kClip, tokens, 0, context_, vocab_size_);
    const at::Tensor x = run(token_embedding_->forward(tokens) + position_embedding_->weight.narrow(0, 0, tokens.size(1)));
    // The first of the largest values: the first end_token, or the first token if there is none.
    const at::Tensor end = tokens.eq(end_token_).to(at::kInt).argmax(1);
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

  at::Tensor scale() const { return logit_scale_.to(at::kFloat).clamp_max(std::log(100.0)).exp(); }

  std::shared_ptr<VisionTower> vision;
  std::shared_ptr<TextTower> text;

 private:
  at::Tensor logit_scale_;
};

void check_clip_options(const ClipOptions& o) {
  check(std::min({o.image_size, o.patch_size, o.vision_layers, o.vision_heads, o.vision_dim, o.vocab_size, o.context, o.text_layers,
                  o.text_heads, o.text_dim, o.projection}) > 0 &&
            o.end_token >= 0,
        ErrorKind::Usage, kClip, "every size must be at least 1, and end_token at least 0");
  check(o.image_size % o.patch_size == 0, ErrorKind::Usage, kClip, "image_size ", o.image_size, " is not a multiple of patch_size ",
        o.patch_size);
  check(o.vision_dim % o.vision_heads == 0, ErrorKind::Usage, kClip, "vision_dim ", o.vision_dim, " is not a multiple of vision_heads ",
        o.vision_heads);
  check(o.text_dim % o.text_heads == 0, ErrorKind::Usage, kClip, "text_dim ", o.text_dim, " is not a multiple of text_heads ",
        o.text_heads);
  check(o.end_token < o.vocab_size, ErrorKind::Usage, kClip, "end_token is ", o.end_token, "; allowed: 0 to ", o.vocab_size - 1,
        " (vocab_size - 1)");
  check(o.tower == "both" || o.tower == "image" || o.tower == "text", ErrorKind::Usage, kClip, "tower '", o.tower,
        "'; allowed: both, image, text");
}

}  // namespace

const ConfigTable<ClipOptions>& ClipOptions::config_table() {
  static const auto table = detail::clip_fields<ClipOptions>("model clip");
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

Model clip(const ClipOptions& options, const std::string& name) {
  check_clip_options(options);
  const auto net = std::make_shared<Clip>(options);
  Model model;
  model.name = name;
  model.module = net;
  model.weights = options.weights;
  model.weights_strict = options.weights_strict;
  model.capturable = true;
  const auto images = image_input(3, options.image_size, /*fixed=*/true);
  auto tokens = detail::token_input(options.vocab_size, options.context);
  if (options.tower != "text") model.inputs.push_back(images);
  if (options.tower != "image") {
    if (options.tower == "both") tokens.name = "tokens";
    model.inputs.push_back(tokens);
  }
  if (options.tower == "image")
    model.forward = [net](const Batch& batch) -> Outputs {
      return Outputs({{"image_features", in_layer("vision", batch.input(), [&](const at::Tensor& x) { return net->vision->forward(x); })}});
    };
  else if (options.tower == "text")
    model.forward = [net](const Batch& batch) -> Outputs {
      return Outputs({{"text_features", in_layer("text", batch.input(), [&](const at::Tensor& x) { return net->text->forward(x); })}});
    };
  else
    model.forward = [net](const Batch& batch) -> Outputs {
      return Outputs({{"image_features", in_layer("vision", batch.input(), [&](const at::Tensor& x) { return net->vision->forward(x); })},
                      {"text_features", in_layer("text", batch.at("tokens"), [&](const at::Tensor& x) { return net->text->forward(x); })},
                      {"scale", net->scale()}});
    };
  return model;
}

}  // namespace npu_train
