/// The measured speed of a device's matrix products, a reference for the speed of models.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Returns floating-point operations per second (a multiply-add is 2): the best of `repeats` products of two square matrices of `size`,
/// after one warm-up. On a CPU, uses libtorch's current number of threads. Rethrows errors of the device.
double gemm_flops(const Device& device, c10::ScalarType dtype = c10::ScalarType::Float, int64_t size = 2048, int64_t repeats = 5);

/// Returns whether the device has hardware units for products in bf16 or fp16, so that their speed is a useful reference. False for fp32.
bool has_units_for(const Device& device, c10::ScalarType low);

}  // namespace npu_train
