// Fused forms of a chain of operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "npu_train/trace/op_chain.hpp"

namespace npu_train::detail {

// A way to compute a chain from its inputs.
struct ChainForm {
  std::string name;
  int64_t weight_bytes = 0;  // bytes of weights in addition to the model's
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs)> run;
};

// Returns the forms that this machine supports for a chain.
std::vector<ChainForm> forms_of(const OpChain& chain);

// Returns the sizes of the result of at::conv2d(x, weight, ...).
std::vector<int64_t> conv_output_sizes(const at::Tensor& x, const at::Tensor& weight, const std::vector<int64_t>& stride,
                                       const std::vector<int64_t>& padding, const std::vector<int64_t>& dilation);

}  // namespace npu_train::detail
