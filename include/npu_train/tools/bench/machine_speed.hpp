/// The measured speed of this machine's copies, for comparison with a training step; that of its products is in device/product_speed.hpp.
#pragma once

#include <cstdint>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Bytes per second, counting read and written bytes, of the best of `repeats` copies of `bytes` in the device's memory. Use more
/// bytes than its caches hold.
double copy_bandwidth(const Device& device, int64_t bytes = int64_t{256} << 20, int64_t repeats = 5);

}  // namespace npu_train
