/// Parameters and buffers of a module by name, as a PyTorch state_dict names them ("layer1.0.conv1.weight").
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/io/safetensors.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

/// Every parameter, frozen ones too, in order of registration; all in group 0. A tensor that is registered under two names (tied
/// weights) appears once, under the first; its other names are the aliases of the set.
ParameterSet parameters_of(const torch::nn::Module& module);

/// Every defined buffer (running statistics, counters), in order of registration.
NamedTensors buffers_of(const torch::nn::Module& module);

/// Parameters, then buffers: the keys of a state_dict. Tied weights appear under each of their names.
NamedTensors named_state(const torch::nn::Module& module);

/// Is it one of libtorch's normalisation layers (batch, instance, layer, group, local response), or one whose type ends with RmsNorm or
/// RMSNorm?
bool is_norm_layer(const torch::nn::Module& module);

/// Names of the parameters that belong to normalisation layers: those that stay fp32 in the low-precision modes.
std::vector<std::string> norm_parameters_of(const torch::nn::Module& module);

/// Class of a module as Python calls it: "Conv2d" of torch::nn::Conv2dImpl, or the name that its constructor gave.
std::string module_type(const torch::nn::Module& module);

/// Classes of a module and all below it by path; "" is the module itself.
std::map<std::string, std::string> module_types(const torch::nn::Module& module);

/// The submodule at a dotted path; "" is the module itself. nullptr when there is none.
torch::nn::Module* find_module(torch::nn::Module& module, const std::string& path);

}  // namespace npu_train
