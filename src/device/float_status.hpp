// The sticky overflow status of an Ascend device, by the operators of torch_npu (namespace npu), which the simulator has too.
#pragma once

#include <c10/core/Device.h>

namespace npu_train::detail {

// Eight numbers, of which the first is not 0 after an overflow. Waits for the device. Error(Device) where the operators are missing.
bool float_status(const c10::Device& device);
void clear_float_status(const c10::Device& device);

}  // namespace npu_train::detail
