/// The measured speed of a device's matrix products: what the speed of a model can be compared with.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Floating point operations per second (a multiply-add is 2) of the best of `repeats` products of two square matrices of `size`, after one
/// that is not measured. On a CPU with libtorch's current threads. Errors of the device are rethrown.
double gemm_flops(const Device& device, c10::ScalarType dtype = c10::ScalarType::Float, int64_t size = 2048, int64_t repeats = 5);

/// Whether the device computes products in bf16 or fp16 by units of its own, so that their speed is one to compare with. False for fp32.
bool has_units_for(const Device& device, c10::ScalarType low);

}  // namespace npu_train
