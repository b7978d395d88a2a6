#include "models/blocks/layer_norm.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/ops/layer_norm.h>

namespace npu_train::detail {
namespace {

// A norm without bias: libtorch's class has either both parameters or none.
struct LayerNormWithoutBias : torch::nn::LayerNormImpl {
  explicit LayerNormWithoutBias(const torch::nn::LayerNormOptions& given) : torch::nn::LayerNormImpl(given) {
    parameters_.erase("bias");
    bias.reset();
  }
};

}  // namespace

std::shared_ptr<torch::nn::LayerNormImpl> add_layer_norm(torch::nn::Module& owner, const std::string& name, int64_t dim, double eps,
                                                         bool bias) {
  const auto options = torch::nn::LayerNormOptions({dim}).eps(eps);
  if (bias) return owner.register_module(name, std::make_shared<torch::nn::LayerNormImpl>(options));
  return owner.register_module<torch::nn::LayerNormImpl>(name, std::make_shared<LayerNormWithoutBias>(options));
}

// Also supports low-precision tokens with fp32 parameters. The CPU kernel accepts mixed dtypes; other devices need a single dtype, to which
// autocast, if enabled, converts.
at::Tensor layer_norm(const at::Tensor& x, const torch::nn::LayerNormImpl& norm) {
  const auto dtype = norm.weight.scalar_type();
  const bool mixed = x.scalar_type() != dtype && !x.is_cpu() && !at::autocast::is_autocast_enabled(x.device().type());
  const at::Tensor y = at::layer_norm(mixed ? x.to(dtype) : x, norm.options.normalized_shape(), norm.weight, norm.bias, norm.options.eps());
  return mixed ? y.to(x.scalar_type()) : y;
}

}  // namespace npu_train::detail
