// The sticky overflow status of an Ascend device, read through operators of torch_npu (namespace npu); the simulator has them, too.
#pragma once

#include <c10/core/Device.h>

namespace npu_train::detail {

// Returns whether an overflow has happened. The status is eight numbers; the first is non-zero after an overflow. Waits for the device.
// Error(Device) if the operators are missing.
bool float_status(const c10::Device& device);
void clear_float_status(const c10::Device& device);

}  // namespace npu_train::detail
