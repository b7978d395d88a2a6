/// The measured speed of this machine's matrix products and copies, for comparison with a training step.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Floating point operations per second (a multiply-add is 2) of the best of `repeats` products of two square matrices of `size`, after one
/// that is not measured. On a CPU with libtorch's current threads. Errors of the device are rethrown.
double gemm_flops(const Device& device, c10::ScalarType dtype = c10::ScalarType::Float, int64_t size = 2048, int64_t repeats = 5);

/// Bytes per second, counting read and written bytes, of the best of `repeats` copies of `bytes` in the device's memory. Use more
/// bytes than its caches hold.
double copy_bandwidth(const Device& device, int64_t bytes = int64_t{256} << 20, int64_t repeats = 5);

}  // namespace npu_train
