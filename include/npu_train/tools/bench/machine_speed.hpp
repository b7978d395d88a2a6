/// How fast this machine multiplies and copies, measured on the spot: what a training step can be held against.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Floating point operations per second (a multiply-add is 2) of the best of `repeats` products of two square matrices of `size`, after one
/// that does not count. On a CPU with the threads that libtorch uses now. Errors of the device go through.
double gemm_flops(const Device& device, c10::ScalarType dtype = c10::ScalarType::Float, int64_t size = 2048, int64_t repeats = 5);

/// Bytes per second, read and written bytes both counted, of the best of `repeats` copies of `bytes` in the device's memory. Take more
/// bytes than its caches hold.
double copy_bandwidth(const Device& device, int64_t bytes = int64_t{256} << 20, int64_t repeats = 5);

}  // namespace npu_train
