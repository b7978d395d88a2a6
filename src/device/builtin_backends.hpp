// The kinds of the library, one object each.
#pragma once

#include <array>

#include "npu_train/device/backend.hpp"

namespace npu_train::detail {

const DeviceBackend& cpu_backend();
const DeviceBackend& cuda_backend();
const DeviceBackend& npu_backend();
const DeviceBackend& sim_npu_backend();
/// All of them, in the order in which "auto" looks.
const std::array<const DeviceBackend*, 4>& builtin_backends();

/// The kind of a program that resolve_device() has chosen as the process's PrivateUse1; "" if there is none.
std::string chosen_kind();

}  // namespace npu_train::detail
