/// Content digests of tensors: two runs agree bit for bit if these agree.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"

namespace npu_train {

/// Digest of dtype, shape and the elements in logical order (strides do not matter); device tensors are copied to the host.
uint64_t digest(const at::Tensor& tensor);

/// Digest over names and values, in order.
uint64_t digest(const ParameterSet& parameters);
uint64_t digest(const State& state);

}  // namespace npu_train
