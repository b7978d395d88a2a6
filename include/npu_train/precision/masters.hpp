/// Master weights: what an optimizer updates in fp32 while the model computes with a tensor in low precision (Micikevicius et al. 2018,
/// arXiv:1710.03740).
#pragma once

#include <c10/core/ScalarType.h>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

/// Casts the tensor of an fp32 parameter to `dtype` in place, and returns its master, which takes the fp32 memory over: Parameter::value,
/// with Parameter::computed the tensor that the model has. The gradient is dropped.
Parameter with_master(const Parameter& parameter, c10::ScalarType dtype);

}  // namespace npu_train
