// The built-in kinds of devices, one object each.
#pragma once

#include <array>

#include "npu_train/device/backend.hpp"

namespace npu_train::detail {

const DeviceBackend& cpu_backend();
const DeviceBackend& cuda_backend();
const DeviceBackend& npu_backend();
const DeviceBackend& sim_npu_backend();
/// Returns all built-in kinds, in the search order of "auto".
const std::array<const DeviceBackend*, 4>& builtin_backends();

/// Returns the kind added by add_backend() that resolve_device() has chosen for this process's PrivateUse1; "" if it has chosen none.
std::string chosen_kind();

}  // namespace npu_train::detail
