/// fp32 master weights, which the optimizer updates while the model computes with low-precision copies (Micikevicius et al. 2018,
/// arXiv:1710.03740).
#pragma once

#include <c10/core/ScalarType.h>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// Casts the tensor of an fp32 parameter to `dtype` in place and returns its master: Parameter::value takes over the fp32 memory, and
/// Parameter::computed is the model's tensor. Drops the gradient. Error(Usage) for a parameter that is not fp32 or does not require a
/// gradient.
Parameter with_master(const Parameter& parameter, c10::ScalarType dtype);

}  // namespace npu_train
