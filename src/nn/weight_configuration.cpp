// The keys of a configuration that the shapes of weights determine.
#include <ATen/ops/equal.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <unordered_map>

#include "nn/weight_rules.hpp"
#include "npu_train/nn/weight_names.hpp"

namespace npu_train {
namespace {

using Keys = std::vector<std::pair<std::string, std::string>>;

class Shapes {
 public:
  explicit Shapes(const NamedTensors& tensors) {
    for (const auto& [name, value] : tensors) shapes_.emplace(name, value.sizes().vec());
  }
  // -1 if there is no such tensor or dimension.
  int64_t size(const std::string& name, size_t dimension) const {
    const auto found = shapes_.find(name);
    return found == shapes_.end() || found->second.size() <= dimension ? -1 : found->second[dimension];
  }
  // Layers with consecutive numbers that have this tensor.
  int64_t layers(const std::string& before, const std::string& after) const {
    int64_t count = 0;
    while (shapes_.count(before + std::to_string(count) + after) != 0) ++count;
    return count;
  }

 private:
  std::unordered_map<std::string, std::vector<int64_t>> shapes_;
};

void add(Keys& keys, const std::string& key, int64_t value) {
  if (value >= 0) keys.emplace_back("model." + key, std::to_string(value));
}

// The side of a square of `patches`; 0 if they form none.
int64_t side_of_square(int64_t patches) {
  const auto side = std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(patches, 0))));
  return side * side == patches ? side : 0;
}

Keys of_vit(const Shapes& shapes) {
  Keys out;
  const auto patch = shapes.size("conv_proj.weight", 2), dim = shapes.size("conv_proj.weight", 0);
  const bool distilled = shapes.size("distillation_token", 2) > 0, two_heads = shapes.size("heads.distillation.weight", 0) > 0;
  const auto tokens = shapes.size("encoder.pos_embedding", 1);
  auto side = side_of_square(tokens - (distilled ? 2 : 1));
  if (side == 0) side = side_of_square(tokens);  // positions of the patches alone
  const std::string block = "encoder.layers.encoder_layer_0.";
  const auto hidden = shapes.size(block + "mlp.0.weight", 0);
  add(out, "num_classes", shapes.size("heads.head.weight", 0));
  if (patch > 0 && side > 0) add(out, "image_size", side * patch);
  add(out, "channels", shapes.size("conv_proj.weight", 1));
  add(out, "patch_size", patch);
  add(out, "dim", dim);
  add(out, "depth", shapes.layers("encoder.layers.encoder_layer_", ".ln_1.weight"));
  add(out, "mlp_dim", hidden == 4 * dim ? 0 : hidden);
  if (shapes.size(block + "layer_scale_1", 0) > 0) out.emplace_back("model.layer_scale", "1e-5");  // any initial value
  if (shapes.size(block + "self_attention.q_norm.weight", 0) > 0) out.emplace_back("model.qk_norm", "true");
  add(out, "registers", shapes.size("register_tokens", 1));
  if (distilled) out.emplace_back("model.distillation", two_heads ? "heads" : "token");
  return out;
}

Keys of_resnet(const Shapes& shapes) {
  // Blocks of the four stages, and whether they are bottlenecks.
  static const std::map<std::pair<std::array<int64_t, 4>, bool>, const char*> names = {{{{2, 2, 2, 2}, false}, "resnet18"},
                                                                                       {{{3, 4, 6, 3}, false}, "resnet34"},
                                                                                       {{{3, 4, 6, 3}, true}, "resnet50"},
                                                                                       {{{3, 4, 23, 3}, true}, "resnet101"},
                                                                                       {{{3, 8, 36, 3}, true}, "resnet152"}};
  std::array<int64_t, 4> blocks{};
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = shapes.layers("layer" + std::to_string(i + 1) + ".", ".conv1.weight");
  Keys out;
  if (const auto found = names.find({blocks, shapes.size("layer1.0.conv3.weight", 0) > 0}); found != names.end())
    out.emplace_back("model.name", found->second);
  add(out, "num_classes", shapes.size("fc.weight", 0));
  add(out, "channels", shapes.size("conv1.weight", 1));
  if (const auto kernel = shapes.size("conv1.weight", 2); kernel == 7 || kernel == 3)
    out.emplace_back("model.stem", kernel == 7 ? "imagenet" : "small");
  return out;
}

// Whether the head is the token embedding.
std::string tied_head(const NamedTensors& tensors) {
  const auto tensor = [&](const char* name) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == name; });
    return found != tensors.end() ? found->second : at::Tensor();
  };
  const auto head = tensor("head.weight"), embedding = tensor("token_embedding.weight");
  return !head.defined() || (head.sizes() == embedding.sizes() && at::equal(head, embedding)) ? "true" : "false";
}

Keys of_gpt2(const Shapes& shapes, const NamedTensors& tensors) {
  Keys out;
  const auto dim = shapes.size("token_embedding.weight", 1), hidden = shapes.size("blocks.0.mlp.fc1.weight", 0);
  add(out, "vocab_size", shapes.size("token_embedding.weight", 0));
  add(out, "context", shapes.size("position_embedding.weight", 0));
  add(out, "layers", shapes.layers("blocks.", ".ln_1.weight"));
  add(out, "dim", dim);
  add(out, "hidden", hidden == 4 * dim ? 0 : hidden);
  out.emplace_back("model.tie_embeddings", tied_head(tensors));
  if (hidden > 0 && shapes.size("blocks.0.mlp.fc1.bias", 0) < 0) out.emplace_back("model.bias", "false");
  return out;
}

Keys of_bert(const Shapes& shapes) {
  Keys out;
  const auto dim = shapes.size("token_embedding.weight", 1), hidden = shapes.size("blocks.0.mlp.fc1.weight", 0);
  add(out, "vocab_size", shapes.size("token_embedding.weight", 0));
  add(out, "context", shapes.size("position_embedding.weight", 0));
  add(out, "layers", shapes.layers("blocks.", ".ln_1.weight"));
  add(out, "dim", dim);
  add(out, "hidden", hidden == 4 * dim ? 0 : hidden);
  add(out, "token_types", shapes.size("type_embedding.weight", 0));
  add(out, "num_classes", shapes.size("classifier.weight", 0));
  return out;
}

Keys of_clip(const Shapes& shapes) {
  Keys out;
  const auto patch = shapes.size("vision.patch.weight", 2);
  const auto side = std::llround(std::sqrt(static_cast<double>(shapes.size("vision.position_embedding.weight", 0) - 1)));
  if (patch > 0 && side > 0) add(out, "image_size", side * patch);
  add(out, "patch_size", patch);
  add(out, "vision_layers", shapes.layers("vision.blocks.", ".ln_1.weight"));
  const auto vision_dim = shapes.size("vision.class_embedding", 0), vision_hidden = shapes.size("vision.blocks.0.mlp.fc1.weight", 0);
  const auto text_dim = shapes.size("text.token_embedding.weight", 1), text_hidden = shapes.size("text.blocks.0.mlp.fc1.weight", 0);
  add(out, "vision_dim", vision_dim);
  add(out, "vision_hidden", vision_hidden == 4 * vision_dim ? 0 : vision_hidden);
  add(out, "vocab_size", shapes.size("text.token_embedding.weight", 0));
  add(out, "context", shapes.size("text.position_embedding.weight", 0));
  add(out, "text_layers", shapes.layers("text.blocks.", ".ln_1.weight"));
  add(out, "text_dim", text_dim);
  add(out, "text_hidden", text_hidden == 4 * text_dim ? 0 : text_hidden);
  add(out, "projection", shapes.size("text.projection.weight", 0));
  return out;
}

Keys of_llama(const Shapes& shapes, const NamedTensors& tensors) {
  Keys out;
  add(out, "vocab_size", shapes.size("token_embedding.weight", 0));
  add(out, "layers", shapes.layers("blocks.", ".norm_1.weight"));
  add(out, "dim", shapes.size("token_embedding.weight", 1));
  add(out, "hidden", shapes.size("blocks.0.mlp.gate.weight", 0));
  out.emplace_back("model.tie_embeddings", tied_head(tensors));
  return out;
}

Keys of_glm(const Shapes& shapes, const NamedTensors& tensors) {
  Keys out;
  add(out, "vocab_size", shapes.size("token_embedding.weight", 0));
  add(out, "layers", shapes.layers("blocks.", ".ln_1.weight"));
  add(out, "dim", shapes.size("token_embedding.weight", 1));
  add(out, "hidden", shapes.size("blocks.0.mlp.fc1.weight", 0));
  out.emplace_back("model.tie_embeddings", tied_head(tensors));
  return out;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> configuration_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, value] : tensors) names.push_back(name);
  const auto found = detail::known_naming(names);
  if (found.naming == nullptr || found.naming->libraries.front() != "torchvision") return {};
  const Shapes shapes(tensors);
  if (found.family->name == "gpt2") return of_gpt2(shapes, tensors);
  if (found.family->name == "llama") return of_llama(shapes, tensors);
  if (found.family->name == "glm") return of_glm(shapes, tensors);
  if (found.family->name == "bert") return of_bert(shapes);
  if (found.family->name == "clip") return of_clip(shapes);
  return found.family->name == "vit" ? of_vit(shapes) : of_resnet(shapes);
}

}  // namespace npu_train
