// Activations of the MLPs, by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace npu_train::detail {

enum class Activation {
  Gelu,       // x Phi(x), by erf
  GeluTanh,   // tanh approximation of Gelu
  QuickGelu,  // x sigmoid(1.702 x)
  Relu,
  Silu,  // x sigmoid(x)
};

// Returns the allowed values of an option `activation`: gelu, gelu_tanh, quick_gelu, relu, silu.
std::vector<std::string> activation_names();

// Parses a name. Error(Usage), with the network's name, if it is unknown.
Activation activation_of(const std::string& name, const char* network);

at::Tensor activated(const at::Tensor& x, Activation activation);

}  // namespace npu_train::detail
