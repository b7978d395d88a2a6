#include "npu_train/nn/module_state.hpp"

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/normalization.h>

#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/name_pattern.hpp"

namespace npu_train {

ParameterSet parameters_of(const torch::nn::Module& module) {
  ParameterSet out;
  for (const auto& item : module.named_parameters(/*recurse=*/true))
    if (item.value().defined()) out.add({.name = item.key(), .value = item.value()});
  return out;
}

NamedTensors buffers_of(const torch::nn::Module& module) {
  NamedTensors out;
  for (const auto& item : module.named_buffers(/*recurse=*/true))
    if (item.value().defined()) out.emplace_back(item.key(), item.value());
  return out;
}

NamedTensors named_state(const torch::nn::Module& module) {
  NamedTensors out;
  for (const auto& item : module.named_parameters(/*recurse=*/true))
    if (item.value().defined()) out.emplace_back(item.key(), item.value());
  for (auto& item : buffers_of(module)) out.push_back(std::move(item));
  return out;
}

bool is_norm_layer(const torch::nn::Module& module) {
  namespace nn = torch::nn;
  const auto type = module_type(module);
  return module.as<nn::BatchNorm1dImpl>() || module.as<nn::BatchNorm2dImpl>() || module.as<nn::BatchNorm3dImpl>() ||
         module.as<nn::InstanceNorm1dImpl>() || module.as<nn::InstanceNorm2dImpl>() || module.as<nn::InstanceNorm3dImpl>() ||
         module.as<nn::LayerNormImpl>() || module.as<nn::GroupNormImpl>() || module.as<nn::LocalResponseNormImpl>() ||
         type.ends_with("RmsNorm") || type.ends_with("RMSNorm");  // libtorch has no RMS norm layer in C++
}

std::vector<std::string> norm_parameters_of(const torch::nn::Module& module) {
  std::vector<std::string> out;
  // Uses named_children(), which is the only const access to children with their names.
  const std::function<void(const torch::nn::Module&, const std::string&)> walk = [&](const torch::nn::Module& m,
                                                                                     const std::string& prefix) {
    if (is_norm_layer(m))
      for (const auto& item : m.named_parameters(/*recurse=*/false))
        if (item.value().defined()) out.push_back(prefix + item.key());
    for (const auto& child : m.named_children()) walk(*child.value(), prefix + child.key() + ".");
  };
  walk(module, "");
  return out;
}

std::string module_type(const torch::nn::Module& module) {
  std::string name = module.name();
  name.erase(0, name.rfind(':') == std::string::npos ? 0 : name.rfind(':') + 1);
  if (name.ends_with("Impl")) name.erase(name.size() - 4);
  return name;
}

std::map<std::string, std::string> module_types(const torch::nn::Module& module) {
  std::map<std::string, std::string> out;
  out[""] = module_type(module);
  for (const auto& item : module.named_children()) {
    for (auto& [path, type] : module_types(*item.value())) out[path.empty() ? item.key() : item.key() + "." + path] = type;
  }
  return out;
}

torch::nn::Module* find_module(torch::nn::Module& module, const std::string& path) {
  torch::nn::Module* at = &module;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto children = at->named_children();
    const auto* child = children.find(path.substr(begin, end - begin));
    if (child == nullptr) return nullptr;
    at = child->get();
    begin = end + 1;
  }
  return at;
}

std::vector<std::string> freeze_parameters(torch::nn::Module& module, const std::vector<std::string>& patterns) {
  const auto parameters = parameters_of(module);
  std::vector<std::string> names;
  for (const auto& p : parameters) names.push_back(p.name);
  const auto chosen = selected_names("freeze", "parameter", patterns, names);
  std::vector<std::string> out;
  std::vector<at::Tensor> frozen;
  bool rest = false;
  for (const auto& p : parameters) {
    const bool is_chosen = chosen.count(p.name) != 0;
    if (is_chosen) out.push_back(p.name), frozen.push_back(p.value);
    rest = rest || (!is_chosen && p.value.requires_grad());
  }
  check(rest, ErrorKind::Usage, "freeze", "no parameter would be left to train");
  for (const auto& value : frozen) value.set_requires_grad(false);
  return out;
}

}  // namespace npu_train
