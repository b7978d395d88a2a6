/// Content digests of tensors: equal digests mean bit-identical values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/state.hpp"

namespace npu_train {

/// Returns the digest of dtype, shape and elements in logical order (strides do not matter). Device tensors are copied to the host.
uint64_t digest(const at::Tensor& tensor);

/// Returns the digest of names and values, in order.
uint64_t digest(const ParameterSet& parameters);
uint64_t digest(const State& state);

}  // namespace npu_train
