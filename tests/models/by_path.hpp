// Modules that hold parameters under given paths, as a network with those names does.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/randn.h>

namespace npu_train::testing {

struct ByPath : torch::nn::Module {
  using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

  ByPath() = default;
  explicit ByPath(const Shapes& shapes) {
    for (const auto& [path, shape] : shapes) add(path, at::randn(shape));
  }
  void add(const std::string& path, const at::Tensor& value) {
    const auto dot = path.find('.');
    if (dot == std::string::npos) {
      register_parameter(path, value);
      return;
    }
    const auto child = path.substr(0, dot);
    if (!named_children().contains(child)) register_module(child, std::make_shared<ByPath>());
    named_children()[child]->as<ByPath>()->add(path.substr(dot + 1), value);
  }
};

// Returns the parameters of a vit with torchvision's names.
inline ByPath::Shapes vit_shapes(int64_t depth = 2, int64_t dim = 4, int64_t tokens = 5, int64_t patch = 2, bool split = false) {
  ByPath::Shapes out = {{"class_token", {1, 1, dim}},
                        {"conv_proj.weight", {dim, 3, patch, patch}},
                        {"conv_proj.bias", {dim}},
                        {"encoder.pos_embedding", {1, tokens, dim}}};
  for (int64_t i = 0; i < depth; ++i) {
    const auto block = "encoder.layers.encoder_layer_" + std::to_string(i) + ".", attention = block + "self_attention.";
    const auto layer = [&](const std::string& name, int64_t from, int64_t to) {
      out.push_back({name + ".weight", {to, from}});
      out.push_back({name + ".bias", {to}});
    };
    const auto norm = [&](const std::string& name) {
      out.push_back({name + ".weight", {dim}});
      out.push_back({name + ".bias", {dim}});
    };
    norm(block + "ln_1");
    if (split) {
      for (const char* part : {"q_proj", "k_proj", "v_proj"}) layer(attention + part, dim, dim);
    } else {
      out.push_back({attention + "in_proj_weight", {3 * dim, dim}});
      out.push_back({attention + "in_proj_bias", {3 * dim}});
    }
    layer(attention + "out_proj", dim, dim);
    norm(block + "ln_2");
    layer(block + "mlp.0", dim, 4 * dim);
    layer(block + "mlp.3", 4 * dim, dim);
  }
  for (const char* name : {"encoder.ln.weight", "encoder.ln.bias"}) out.push_back({name, {dim}});
  out.push_back({"heads.head.weight", {10, dim}});
  out.push_back({"heads.head.bias", {10}});
  return out;
}

}  // namespace npu_train::testing
