/// The parameters, buffers and modes of any module: names as in a PyTorch state_dict, freezing, and evaluation mode for a scope.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/io/safetensors.hpp"

namespace npu_train {

// Parameters and buffers of a module by their names in a PyTorch state_dict ("layer1.0.conv1.weight").

/// Returns all parameters, including frozen ones, in order of registration and in group 0. A tensor that is registered under several names
/// (tied weights) appears once, under its first name; the other names are aliases of the set.
ParameterSet parameters_of(const torch::nn::Module& module);

/// Returns all defined buffers (running statistics, counters) in order of registration.
NamedTensors buffers_of(const torch::nn::Module& module);

/// Returns parameters, then buffers: the entries of a state_dict. Tied weights appear under each of their names.
NamedTensors named_state(const torch::nn::Module& module);

/// Returns whether the module is a normalisation layer of libtorch (batch, instance, layer, group, local response), or of a type whose name
/// ends with RmsNorm or RMSNorm.
bool is_norm_layer(const torch::nn::Module& module);

/// Returns the names of the parameters of normalisation layers, which stay fp32 in the low-precision modes.
std::vector<std::string> norm_parameters_of(const torch::nn::Module& module);

/// Returns the class of a module as in Python ("Conv2d" for torch::nn::Conv2dImpl), or the name that its constructor set.
std::string module_type(const torch::nn::Module& module);

/// Returns the classes of a module and its descendants by path; "" is the module itself.
std::map<std::string, std::string> module_types(const torch::nn::Module& module);

/// Returns the submodule at a dotted path ("" is the module itself), or nullptr.
torch::nn::Module* find_module(torch::nn::Module& module, const std::string& path);

/// Freezes the parameters (requires_grad = false) that match a pattern (name_pattern.hpp: "token_embedding", "blocks.0", "*.bias") and
/// returns their names in order of registration. Error(Usage), without a change, for a pattern that matches no parameter (the message lists
/// some names), and if no trainable parameter would remain. Running statistics of a frozen normalisation layer still follow the data in
/// training mode, as in PyTorch.
std::vector<std::string> freeze_parameters(torch::nn::Module& module, const std::vector<std::string>& patterns);

/// Sets evaluation mode; the destructor restores the mode of every submodule.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : modules_(module.modules()) {
    for (const auto& m : modules_) training_.push_back(m->is_training());
    module.eval();
  }
  ~EvaluationMode() {
    for (size_t i = 0; i < modules_.size(); ++i)
      modules_[i]->train(training_[i]);  // parents first, in the order of modules(), because train() recurses
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<bool> training_;
};

}  // namespace npu_train
