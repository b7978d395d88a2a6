#include "layer_norm.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/ops/layer_norm.h>

namespace npu_train::detail {

std::shared_ptr<torch::nn::LayerNormImpl> add_layer_norm(torch::nn::Module& owner, const std::string& name, int64_t dim, double eps) {
  return owner.register_module(name, std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({dim}).eps(eps)));
}

// Low-precision tokens with fp32 norm parameters: the CPU kernel accepts the pair, others require one dtype (autocast converts by itself).
at::Tensor layer_norm(const at::Tensor& x, const torch::nn::LayerNormImpl& norm) {
  const auto dtype = norm.weight.scalar_type();
  const bool mixed = x.scalar_type() != dtype && !x.is_cpu() && !at::autocast::is_autocast_enabled(x.device().type());
  const at::Tensor y = at::layer_norm(mixed ? x.to(dtype) : x, norm.options.normalized_shape(), norm.weight, norm.bias, norm.options.eps());
  return mixed ? y.to(x.scalar_type()) : y;
}

}  // namespace npu_train::detail
