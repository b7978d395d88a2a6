#include "npu_train/models/internvl.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "models/blocks/encoder.hpp"
#include "models/blocks/layer_norm.hpp"
#include "models/llama/llama_net.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr const char *kInternVl = "internvl", *kText = "tokens";
constexpr double kVisionStd = 0.02, kVisionNormEps = 1e-6, kProjectorNormEps = 1e-5;

struct VisionBlocks : torch::nn::Module {
  VisionBlocks() : torch::nn::Module("Blocks") {}
};

// InternViT: a vision transformer without a norm after the last block.
class InternVit : public torch::nn::Module {
 public:
  explicit InternVit(const InternVlOptions& o)
      : torch::nn::Module("InternVit"),
        tokens_(*this, {.network = kInternVl,
                        .image_size = o.image_size,
                        .patch_size = o.patch_size,
                        .dim = o.vision_dim,
                        .bias = true,
                        .class_std = kVisionStd,
                        .patch_std = kVisionStd,
                        .position_std = kVisionStd}) {
    const detail::PreNormOptions block{
        .attention = {.dim = o.vision_dim, .heads = o.vision_heads, .std = kVisionStd, .fused_kernels = o.fused_kernels == "auto"},
        .hidden = o.vision_hidden > 0 ? o.vision_hidden : 4 * o.vision_dim,
        .norm_eps = kVisionNormEps,
        .mlp_std = kVisionStd,
        .mlp_residual_std = kVisionStd,
        .layer_scale = o.layer_scale};
    auto list = register_module("blocks", std::make_shared<VisionBlocks>());
    for (int64_t i = 0; i < o.vision_layers; ++i)
      blocks.push_back(list->register_module(std::to_string(i), std::make_shared<detail::PreNormBlock>(block)));
  }

  at::Tensor embed(const at::Tensor& images) const { return tokens_(images); }

  std::vector<std::shared_ptr<detail::PreNormBlock>> blocks;

 private:
  detail::ImageTokens tokens_;
};

// Joins squares of `side` x `side` patches into one vector each: tokens [N, 1 + patches, dim] to [N, patches / side^2, dim side^2], without
// the class token. The patches of a square are in row order.
at::Tensor joined_patches(const at::Tensor& x, int64_t patches_of_side, int64_t side) {
  const int64_t n = x.size(0), dim = x.size(2), squares = patches_of_side / side;
  return x.narrow(1, 1, patches_of_side * patches_of_side)
      .reshape({n, squares, side, squares, side, dim})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({n, squares * squares, side * side * dim});
}

// Joins patches and projects them to the width of the language model. Parameters: norm, fc1, fc2.
class Projector : public torch::nn::Module {
 public:
  explicit Projector(const InternVlOptions& o)
      : torch::nn::Module("Projector"), patches_(o.image_size / o.patch_size), side_(o.pixel_shuffle) {
    const int64_t joined = o.vision_dim * o.pixel_shuffle * o.pixel_shuffle;
    norm_ = detail::add_layer_norm(*this, "norm", joined, kProjectorNormEps);
    fc1_ = detail::normal_linear(*this, "fc1", joined, o.dim, kVisionStd, /*bias=*/true, o.fused_kernels == "auto");
    fc2_ = detail::normal_linear(*this, "fc2", o.dim, o.dim, kVisionStd, /*bias=*/true, o.fused_kernels == "auto");
  }

  at::Tensor forward(const at::Tensor& x) const {
    return fc2_->forward(at::gelu(fc1_->forward(detail::layer_norm(joined_patches(x, patches_, side_), *norm_))));
  }

 private:
  int64_t patches_, side_;
  std::shared_ptr<torch::nn::LayerNormImpl> norm_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

class InternVl : public torch::nn::Module {
 public:
  explicit InternVl(const InternVlOptions& o)
      : torch::nn::Module("InternVl"), places{o.image_token, o.image_tokens()}, text(detail::token_input(o.vocab_size, o.context)) {
    vision = register_module("vision", std::make_shared<InternVit>(o));
    projector = register_module("projector", std::make_shared<Projector>(o));
    language = register_module("language", std::make_shared<detail::Llama>(o, kInternVl));
  }

  // Returns the vectors of tokens [N, T]. The vectors of an image [N or 1, places.count, dim] replace those of the image tokens. The tokens
  // follow `before` earlier tokens, of which `images_before` are image tokens.
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& image, int64_t before = 0, int64_t images_before = 0) const {
    const at::Tensor x = language->embed(tokens, before);
    check_places(tokens, images_before);
    const at::Tensor selected = tokens.eq(places.token);
    const at::Tensor number = (selected.cumsum(1) + (images_before - 1)).clamp(0, places.count - 1);
    const at::Tensor vectors = image.to(x.scalar_type()).expand({tokens.size(0), -1, -1});
    return at::where(selected.unsqueeze(2), vectors.gather(1, number.unsqueeze(2).expand({-1, -1, x.size(2)})), x);
  }

  // Maps images [N, 3, size, size] to their vectors [N, places.count, dim].
  at::Tensor vectors(const at::Tensor& images) const {
    at::Tensor x = vision->embed(images);
    for (const auto& block : vision->blocks) x = block->forward(x);
    return projector->forward(x);
  }

  const ImagePlaces places;
  const InputSpec text;
  std::shared_ptr<InternVit> vision;
  std::shared_ptr<Projector> projector;
  std::shared_ptr<detail::Llama> language;

 private:
  // Checks the image tokens. Uses no operators, for the same reason as detail::check_ids().
  void check_places(const at::Tensor& tokens, int64_t before) const {
    if (!tokens.is_cpu()) return;
    const auto ids = tokens.accessor<int64_t, 2>();
    for (int64_t i = 0; i < ids.size(0); ++i) {
      int64_t count = before;
      for (int64_t k = 0; k < ids.size(1); ++k) count += ids[i][k] == places.token ? 1 : 0;
      check(count <= places.count, ErrorKind::Data, kInternVl, "sequence ", i, " has ", count, " image tokens (", places.token,
            "), and an image has ", places.count, " vectors: (image_size / patch_size / pixel_shuffle)^2");
    }
  }
};

void check_internvl_options(const InternVlOptions& o) {
  check(std::min({o.image_size, o.patch_size, o.vision_layers, o.vision_heads, o.vision_dim, o.pixel_shuffle}) > 0 && o.vision_hidden >= 0,
        ErrorKind::Usage, kInternVl, "every size must be at least 1, and vision_hidden at least 0");
  check(o.image_size % (o.patch_size * o.pixel_shuffle) == 0, ErrorKind::Usage, kInternVl, "image_size ", o.image_size,
        " is not a multiple of patch_size * pixel_shuffle = ", o.patch_size * o.pixel_shuffle);
  check(o.vision_dim % o.vision_heads == 0, ErrorKind::Usage, kInternVl, "vision_dim ", o.vision_dim, " is not a multiple of vision_heads ",
        o.vision_heads);
  check(o.layer_scale > 0, ErrorKind::Usage, kInternVl, "layer_scale is ", o.layer_scale, "; allowed: more than 0");
  detail::check_llama_options(o, kInternVl);
  check(o.image_token >= 0 && o.image_token < o.vocab_size, ErrorKind::Usage, kInternVl, "image_token is ", o.image_token,
        "; allowed: 0 to ", o.vocab_size - 1, " (vocab_size - 1)");
  check(o.image_tokens() < o.context, ErrorKind::Usage, kInternVl, "an image has ", o.image_tokens(),
        " vectors, which leave no room for a question in context ", o.context, "; hint: a larger context, patch_size or pixel_shuffle");
}

InternVl* as_internvl(const Model& model) { return model.module ? model.module->as<InternVl>() : nullptr; }

}  // namespace

int64_t InternVlOptions::image_tokens() const {
  const int64_t side = image_size / patch_size / pixel_shuffle;
  return side * side;
}

const ConfigTable<InternVlOptions>& InternVlOptions::config_table() {
  using T = InternVlOptions;
  static const auto table =
      ConfigTable<T>("model internvl")
          .field("image_size", &T::image_size, "pixels of a side; must be a multiple of patch_size * pixel_shuffle", between(1, 1 << 14))
          .field("patch_size", &T::patch_size, "pixels of a side of a patch", between(1, 1 << 14))
          .field("vision_layers", &T::vision_layers, "blocks of the vision transformer", between(1, 4096))
          .field("vision_heads", &T::vision_heads, "attention heads of the vision transformer", between(1, 4096))
          .field("vision_dim", &T::vision_dim, "width of the vision transformer; must be a multiple of vision_heads", between(1, 1 << 16))
          .field("vision_hidden", &T::vision_hidden, "width of its MLPs; 0: four times vision_dim", between(0, 1 << 18))
          .field("layer_scale", &T::layer_scale, "initial value of the factors of its branches", more_than(0))
          .field("pixel_shuffle", &T::pixel_shuffle, "patches of a side that become one vector: 1 / downsample_ratio", between(1, 64))
          .field("image_token", &T::image_token, "the token in whose place a vector of the image is put", between(0, 1 << 24))
          .synonym("img_context_token_id", "image_token")
          .inherited<LlamaOptions>();
  return table;
}

InternVlOptions internvl_tiny_options() {
  InternVlOptions o;
  static_cast<LlamaOptions&>(o) = llama_tiny_options();
  o.image_size = 32;
  o.patch_size = 4;
  o.vision_layers = 2;
  o.vision_heads = 2;
  o.vision_dim = 64;
  o.layer_scale = 1;
  o.image_token = 255;
  return o;
}

Model internvl(const InternVlOptions& options, const std::string& name) {
  check_internvl_options(options);
  const auto net = std::make_shared<InternVl>(options);
  Model model = detail::model_of(name, net, options);
  model.inputs = {image_input(3, options.image_size, /*fixed=*/true), net->text};
  model.inputs.back().name = kText;
  model.blocks.push_back({"vision.embed", [net](const at::Tensor& images) { return net->vision->embed(images); }});
  for (size_t i = 0; i < net->vision->blocks.size(); ++i)
    model.blocks.push_back(
        {"vision.blocks." + std::to_string(i), [net, i](const at::Tensor& x) { return net->vision->blocks[i]->forward(x); }});
  model.blocks.push_back({"projector", [net](const at::Tensor& x) { return net->projector->forward(x); }});
  model.blocks.push_back({"language.embed", [net](const ForwardContext& context, const at::Tensor& image) {
                            const at::Tensor tokens = context.get(kText);
                            check(tokens.defined(), ErrorKind::Usage, kInternVl, "the batch has no '", kText,
                                  "'; hint: use data with questions, such as image_questions");
                            return net->embed(tokens, image);
                          }});
  for (size_t i = 0; i < net->language->blocks.size(); ++i)
    model.blocks.push_back({"language.blocks." + std::to_string(i), [net, i](const at::Tensor& x) { return net->language->block(i, x); }});
  model.blocks.push_back({"language.head", [net](const at::Tensor& x) { return net->language->head(x); }});
  return chain_blocks(std::move(model));
}

std::optional<ImagePlaces> image_places(const Model& model) {
  const auto* net = as_internvl(model);
  return net != nullptr ? std::optional(net->places) : std::nullopt;
}

Model about_image(const Model& model, const at::Tensor& image) {
  check(as_internvl(model) != nullptr, ErrorKind::Usage, "about_image", "the model '", model.name, "' reads no image and text; ",
        "allowed: models made by internvl()");
  const auto net = std::dynamic_pointer_cast<InternVl>(model.module);
  const auto parameters = net->parameters();
  const c10::AutoGradMode no_grad(false);
  const at::Tensor vectors = net->vectors(image.unsqueeze(0).to(parameters.front().device()));
  Model out;
  out.name = model.name;
  out.module = net;
  out.inputs = {net->text};
  const auto start = [net, vectors] {
    auto caches =
        std::make_shared<std::vector<detail::KeyValueCache>>(net->language->blocks.size(), detail::KeyValueCache(net->language->context()));
    auto images = std::make_shared<int64_t>(0);  // number of image tokens so far
    return [net, vectors, caches, images](const at::Tensor& tokens) {
      const c10::AutoGradMode without_gradients(false);
      at::Tensor x = net->embed(tokens, vectors, caches->front().tokens(), *images);
      *images += tokens.eq(net->places.token).sum().item<int64_t>();
      for (size_t i = 0; i < net->language->blocks.size(); ++i) x = net->language->block(i, x, &(*caches)[i]);
      at::Tensor logits = net->language->head(x);
      logits.select(2, net->places.token).fill_(-std::numeric_limits<float>::infinity());
      return logits;
    };
  };
  out.forward = [start](const at::Tensor& tokens) { return start()(tokens); };
  out.start_sequence = start;
  return out;
}

}  // namespace npu_train
