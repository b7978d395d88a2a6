#include "models/blocks/activation.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

const std::vector<std::pair<std::string, Activation>>& activations() {
  static const std::vector<std::pair<std::string, Activation>> all = {{"gelu", Activation::Gelu},
                                                                      {"gelu_tanh", Activation::GeluTanh},
                                                                      {"quick_gelu", Activation::QuickGelu},
                                                                      {"relu", Activation::Relu},
                                                                      {"silu", Activation::Silu}};
  return all;
}

}  // namespace

std::vector<std::string> activation_names() {
  std::vector<std::string> out;
  for (const auto& [name, activation] : activations()) out.push_back(name);
  return out;
}

Activation activation_of(const std::string& name, const char* network) {
  for (const auto& [known, activation] : activations())
    if (known == name) return activation;
  throw Error(ErrorKind::Usage, network, "activation '" + name + "'; allowed: " + join(activation_names()));
}

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::GeluTanh:
      return at::gelu(x, "tanh");
    case Activation::QuickGelu:
      return x * at::sigmoid(1.702 * x);
    case Activation::Relu:
      return at::relu(x);
    case Activation::Silu:
      return at::silu(x);
    default:
      return at::gelu(x);
  }
}

}  // namespace npu_train::detail
