// Layer normalisation of the transformers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <memory>
#include <string>

namespace npu_train::detail {

// Registers a LayerNorm over the last dimension in `owner`.
std::shared_ptr<torch::nn::LayerNormImpl> add_layer_norm(torch::nn::Module& owner, const std::string& name, int64_t dim, double eps,
                                                         bool bias = true);

// Applies `norm` to x [..., dim] and returns the dtype of x, whatever the dtype of the parameters.
at::Tensor layer_norm(const at::Tensor& x, const torch::nn::LayerNormImpl& norm);

}  // namespace npu_train::detail
