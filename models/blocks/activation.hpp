// The activations between the layers of an MLP, by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace npu_train::detail {

enum class Activation {
  Gelu,       // x Phi(x), by erf
  GeluTanh,   // its approximation by tanh
  QuickGelu,  // x sigmoid(1.702 x)
  Relu,
  Silu,  // x sigmoid(x)
};

// The values of an option `activation`: gelu, gelu_tanh, quick_gelu, relu, silu.
std::vector<std::string> activation_names();

// Error(Usage), with the network's name, for another name.
Activation activation_of(const std::string& name, const char* network);

at::Tensor activated(const at::Tensor& x, Activation activation);

}  // namespace npu_train::detail
