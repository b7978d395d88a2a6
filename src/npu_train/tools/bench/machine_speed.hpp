/// The measured copy speed of this machine, for comparison with a training step; for matrix products see device/product_speed.hpp.
#pragma once

#include <cstdint>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Returns bytes per second, read and written, of the best of `repeats` copies of `bytes` in device memory. `bytes` should exceed the
/// caches.
double copy_bandwidth(const Device& device, int64_t bytes = int64_t{256} << 20, int64_t repeats = 5);

}  // namespace npu_train
