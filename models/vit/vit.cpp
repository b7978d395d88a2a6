#include "npu_train/models/vit.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <torch/nn/modules/container/modulelist.h>

#include "models/blocks/activation.hpp"
#include "models/blocks/layer_norm.hpp"
#include "npu_train/nn/init.hpp"
#include "npu_train/nn/layer_scope.hpp"
#include "npu_train/nn/layers.hpp"
#include "npu_train/nn/packed_linear.hpp"

namespace npu_train {
namespace {

struct Parent : torch::nn::Module {
  using torch::nn::Module::Module;
};

bool has_fused_kernels(const VitOptions& o) { return o.fused_kernels == "auto"; }

std::shared_ptr<Linear> xavier_linear(torch::nn::Module& owner, const std::string& name, int64_t in, int64_t out, bool packed) {
  auto linear = owner.register_module(name, std::make_shared<Linear>(in, out, true, packed));
  init::xavier_uniform_(linear->weight);
  init::zeros_(linear->bias);
  return linear;
}

class SelfAttention : public torch::nn::Module {
 public:
  explicit SelfAttention(const VitOptions& o)
      : torch::nn::Module("SelfAttention"),
        heads_(o.heads),
        dim_(o.dim),
        dropout_(o.attention_dropout),
        causal_(o.attention_mask == "causal"),
        fused_(has_fused_kernels(o)) {
    // Starts fused and split projections from the same [3 dim, dim] matrix.
    const at::Tensor whole = at::empty({3 * dim_, dim_});
    init::xavier_uniform_(whole);
    if (o.qkv == "fused") {
      in_weight_ = register_parameter("in_proj_weight", whole);
      in_bias_ = register_parameter("in_proj_bias", at::empty({3 * dim_}));
      init::zeros_(in_bias_);
    } else {
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
        auto part = register_module(name, std::make_shared<Linear>(dim_, dim_, true, fused_));
        part->weight.data().copy_(whole.narrow(0, static_cast<int64_t>(split_.size()) * dim_, dim_));
        init::zeros_(part->bias);
        split_.push_back(part);
      }
    }
    out_proj_ = xavier_linear(*this, "out_proj", dim_, dim_, fused_);
    if (!o.qk_norm) return;
    q_norm_ = detail::add_layer_norm(*this, "q_norm", dim_ / heads_, o.norm_eps);
    k_norm_ = detail::add_layer_norm(*this, "k_norm", dim_ / heads_, o.norm_eps);
  }

  at::Tensor forward(const at::Tensor& x) {
    const int64_t n = x.size(0), tokens = x.size(1);
    const auto by_head = [&](const at::Tensor& t) { return t.view({n, tokens, heads_, dim_ / heads_}).transpose(1, 2); };
    at::Tensor q, k, v;
    if (split_.empty()) {
      const at::Tensor whole = fused_ ? packed_linear(x, in_weight_, in_bias_) : at::linear(x, in_weight_, in_bias_);
      const auto qkv = whole.view({n, tokens, 3, heads_, dim_ / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
      q = qkv[0], k = qkv[1], v = qkv[2];
    } else {
      q = by_head(split_[0]->forward(x)), k = by_head(split_[1]->forward(x)), v = by_head(split_[2]->forward(x));
    }
    if (q_norm_ != nullptr) q = detail::layer_norm(q, *q_norm_), k = detail::layer_norm(k, *k_norm_);
    const at::Tensor y = npu_train::attention(q, k, v, mask_for(q), is_training() ? dropout_ : 0.0, causal_ && !mask_.defined(), fused_);
    return out_proj_->forward(y.transpose(1, 2).reshape({n, tokens, dim_}));
  }

  void set_mask(const at::Tensor& mask) { mask_ = mask; }

 private:
  std::optional<at::Tensor> mask_for(const at::Tensor& q) {
    if (!mask_.defined()) return std::nullopt;
    mask_ = mask_.to(q.device());
    return mask_.scalar_type() == at::kBool ? mask_ : mask_.to(q.scalar_type());
  }

  int64_t heads_, dim_;
  double dropout_;
  bool causal_, fused_;
  at::Tensor in_weight_, in_bias_, mask_;
  std::vector<std::shared_ptr<Linear>> split_;
  std::shared_ptr<Linear> out_proj_;
  std::shared_ptr<torch::nn::LayerNormImpl> q_norm_, k_norm_;
};

detail::Activation activation_of_mlp(const VitOptions& o) {
  return o.activation == "gelu" && o.gelu == "tanh" ? detail::Activation::GeluTanh : detail::activation_of(o.activation, "vit");
}

class EncoderBlock : public torch::nn::Module {
 public:
  EncoderBlock(const VitOptions& o, double drop_path_rate)
      : torch::nn::Module("EncoderBlock"), dropout_(o.dropout), drop_path_(drop_path_rate), activation_(activation_of_mlp(o)) {
    ln_1_ = detail::add_layer_norm(*this, "ln_1", o.dim, o.norm_eps);
    attention = register_module("self_attention", std::make_shared<SelfAttention>(o));
    ln_2_ = detail::add_layer_norm(*this, "ln_2", o.dim, o.norm_eps);
    // Leaves out the children 1, 2 and 4, the activation and the dropouts, which have no parameters.
    auto mlp = register_module("mlp", std::make_shared<Parent>("Mlp"));
    const int64_t hidden = o.mlp_dim > 0 ? o.mlp_dim : 4 * o.dim;
    fc1_ = xavier_linear(*mlp, "0", o.dim, hidden, has_fused_kernels(o));
    fc2_ = xavier_linear(*mlp, "3", hidden, o.dim, has_fused_kernels(o));
    if (o.layer_scale <= 0) return;
    scale_1_ = register_parameter("layer_scale_1", at::full({o.dim}, o.layer_scale));
    scale_2_ = register_parameter("layer_scale_2", at::full({o.dim}, o.layer_scale));
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto attend = [this](const at::Tensor& t) { return attention->forward(t); };
    const at::Tensor y = x + branch(in_layer("self_attention", detail::layer_norm(x, *ln_1_), attend), scale_1_);
    at::Tensor h = detail::activated(fc1_->forward(detail::layer_norm(y, *ln_2_)), activation_);
    h = fc2_->forward(npu_train::dropout(h, dropout_, is_training()));
    return y + branch(h, scale_2_);
  }

  std::shared_ptr<SelfAttention> attention;

 private:
  at::Tensor branch(const at::Tensor& x, const at::Tensor& scale) {
    const at::Tensor y = npu_train::dropout(x, dropout_, is_training());
    return npu_train::drop_path(scale.defined() ? y * scale.to(y.scalar_type()) : y, drop_path_, is_training());
  }

  double dropout_, drop_path_;
  detail::Activation activation_;
  at::Tensor scale_1_, scale_2_;  // undefined without layer_scale
  std::shared_ptr<torch::nn::LayerNormImpl> ln_1_, ln_2_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

class VisionTransformer : public torch::nn::Module {
 public:
  explicit VisionTransformer(const VitOptions& o)
      : torch::nn::Module("VisionTransformer"), image_size_(o.image_size), channels_(o.channels), dropout_(o.dropout) {
    const int64_t side = o.image_size / o.patch_size;
    class_token_ = register_parameter("class_token", at::empty({1, 1, o.dim}));
    init::zeros_(class_token_);
    if (o.distillation != "none") distillation_token_ = learned_tokens("distillation_token", 1, o.dim);
    if (o.registers > 0) register_tokens_ = learned_tokens("register_tokens", o.registers, o.dim);
    conv_proj_ =
        register_module("conv_proj", std::make_shared<Conv2d>(Conv2d::Options{
                                         .in = o.channels, .out = o.dim, .kernel = o.patch_size, .stride = o.patch_size, .bias = true}));
    init::trunc_normal_(conv_proj_->weight, std::sqrt(1.0 / static_cast<double>(o.channels * o.patch_size * o.patch_size)));
    init::zeros_(conv_proj_->bias);

    auto encoder = register_module("encoder", std::make_shared<Parent>("Encoder"));
    pos_embedding_ = encoder->register_parameter("pos_embedding", at::empty({1, side * side + (o.distillation != "none" ? 2 : 1), o.dim}));
    init::normal_(pos_embedding_, 0.02);
    auto layers = encoder->register_module("layers", std::make_shared<Parent>("Layers"));
    for (int64_t i = 0; i < o.depth; ++i) {
      const double rate = o.depth > 1 ? o.drop_path * static_cast<double>(i) / static_cast<double>(o.depth - 1) : o.drop_path;
      blocks.push_back(layers->register_module("encoder_layer_" + std::to_string(i), std::make_shared<EncoderBlock>(o, rate)));
    }
    ln_ = detail::add_layer_norm(*encoder, "ln", o.dim, o.norm_eps);

    auto heads = register_module("heads", std::make_shared<Parent>("Heads"));
    head_ = new_head(*heads, "head", o);
    if (o.distillation == "heads") distillation_head_ = new_head(*heads, "distillation", o);
  }

  // Maps images [N, C, H, W] to tokens [N, tokens, dim]: class token, registers, distillation token, patches.
  at::Tensor embed(const at::Tensor& x) {
    check(x.dim() == 4 && x.size(1) == channels_ && x.size(2) == image_size_ && x.size(3) == image_size_, ErrorKind::Usage, "vit",
          "input of shape ", x.sizes(), "; this network requires [N, ", channels_, ", ", image_size_, ", ", image_size_,
          "]: set image_size, or resize the images");
    const at::Tensor patches = conv_proj_->forward(x).flatten(2).transpose(1, 2);
    const auto of_batch = [&](const at::Tensor& learned) { return learned.to(patches.scalar_type()).expand({x.size(0), -1, -1}); };
    std::vector<at::Tensor> parts = {of_batch(class_token_)};
    if (distillation_token_.defined()) parts.push_back(of_batch(distillation_token_));
    parts.push_back(patches);
    at::Tensor tokens = at::cat(parts, 1) + pos_embedding_;
    if (register_tokens_.defined())
      tokens = at::cat(
          {tokens.narrow(1, 0, 1), of_batch(register_tokens_).to(tokens.scalar_type()), tokens.narrow(1, 1, tokens.size(1) - 1)}, 1);
    return npu_train::dropout(tokens, dropout_, is_training());
  }

  // Normalises all tokens, although the heads read only one or two of them: torchvision's network does so, and dumps of both must show the
  // same tensor.
  at::Tensor head(const at::Tensor& x) {
    const at::Tensor y = detail::layer_norm(x, *ln_);
    const at::Tensor logits = head_->forward(y.select(1, 0));
    return distillation_head_ == nullptr ? logits : (logits + distillation_head_->forward(y.select(1, 1 + registers()))) / 2;
  }

  void set_mask(const at::Tensor& mask) {
    for (const auto& block : blocks) block->attention->set_mask(mask);
  }

  std::vector<std::shared_ptr<EncoderBlock>> blocks;

 private:
  at::Tensor learned_tokens(const std::string& name, int64_t number, int64_t dim) {
    const at::Tensor out = register_parameter(name, at::empty({1, number, dim}));
    init::normal_(out, 0.02);
    return out;
  }
  static std::shared_ptr<Linear> new_head(torch::nn::Module& heads, const std::string& name, const VitOptions& o) {
    auto head = heads.register_module(name, std::make_shared<Linear>(o.dim, o.num_classes));
    if (o.head_init == "xavier_uniform")
      init::xavier_uniform_(head->weight);
    else
      init::trunc_normal_(head->weight, 0.02);
    init::zeros_(head->bias);
    return head;
  }
  int64_t registers() const { return register_tokens_.defined() ? register_tokens_.size(1) : 0; }

  int64_t image_size_, channels_;
  double dropout_;
  at::Tensor class_token_, distillation_token_, register_tokens_, pos_embedding_;
  std::shared_ptr<Conv2d> conv_proj_;
  std::shared_ptr<torch::nn::LayerNormImpl> ln_;
  std::shared_ptr<Linear> head_, distillation_head_;
};

void check_options(const VitOptions& o) {
  const auto usage = ErrorKind::Usage;
  check(o.num_classes > 0 && o.channels > 0 && o.dim > 0 && o.depth > 0 && o.heads > 0 && o.patch_size > 0 && o.image_size > 0 &&
            o.mlp_dim >= 0,
        usage, "vit", "num_classes, channels, dim, depth, heads, patch_size and image_size must be at least 1, mlp_dim at least 0");
  check(o.image_size % o.patch_size == 0, usage, "vit", "image_size ", o.image_size, " is not a multiple of patch_size ", o.patch_size);
  check(o.dim % o.heads == 0, usage, "vit", "dim ", o.dim, " is not a multiple of heads ", o.heads);
  for (const double p : {o.dropout, o.attention_dropout, o.drop_path})
    check(p >= 0.0 && p < 1.0, usage, "vit", "a dropout rate of ", p, "; allowed: at least 0 and below 1");
  check(o.qkv == "fused" || o.qkv == "split", usage, "vit", "qkv '", o.qkv, "'; allowed: fused, split");
  const bool has_form = o.activation == "gelu" || o.gelu == "exact";
  check(has_form && o.activation != "gelu_tanh", usage, "vit", "activation '", o.activation, "' with gelu '", o.gelu,
        "'; allowed: gelu (with gelu exact or tanh), quick_gelu, relu, silu");
  check(o.gelu == "exact" || o.gelu == "tanh", usage, "vit", "gelu '", o.gelu, "'; allowed: exact, tanh");
  check(o.fused_kernels == "auto" || o.fused_kernels == "false", usage, "vit", "fused_kernels '", o.fused_kernels,
        "'; allowed: auto, false");
  check(o.layer_scale >= 0 && o.registers >= 0, usage, "vit", "layer_scale is ", o.layer_scale, " and registers ", o.registers,
        "; both must be at least 0");
  check(o.distillation == "none" || o.distillation == "token" || o.distillation == "heads", usage, "vit", "distillation '", o.distillation,
        "'; allowed: none, token, heads");
  check(o.attention_mask == "none" || o.attention_mask == "causal", usage, "vit", "attention_mask '", o.attention_mask,
        "'; allowed: none, causal");
}

}  // namespace

Model vit(const VitOptions& options, const std::string& name) {
  check_options(options);
  auto net = std::make_shared<VisionTransformer>(options);
  Model model{.name = name,
              .module = net,
              .forward = {},
              .inputs = {image_input(options.channels, options.image_size, /*fixed=*/true)},
              .num_classes = options.num_classes,
              .head = "heads.head",
              .weights = options.weights,
              .weights_strict = options.weights_strict,
              .capturable = true,
              .blocks = {}};
  model.blocks.push_back({"embed", [net](const at::Tensor& x) { return net->embed(x); }});
  for (size_t i = 0; i < net->blocks.size(); ++i)
    model.blocks.push_back(
        {"encoder.layers.encoder_layer_" + std::to_string(i), [net, i](const at::Tensor& x) { return net->blocks[i]->forward(x); }});
  model.blocks.push_back({"head", [net](const at::Tensor& x) { return net->head(x); }});
  return chain_blocks(std::move(model));
}

void set_attention_mask(const Model& model, const at::Tensor& mask) {
  auto* net = model.module ? model.module->as<VisionTransformer>() : nullptr;
  check(net != nullptr, ErrorKind::Usage, "set_attention_mask", "the model '", model.name,
        "' is not one of this library's vision transformers");
  net->set_mask(mask);
}

}  // namespace npu_train
