#include "device/generic_backend.hpp"
#include "device/unavailable_backend.hpp"

namespace npu_train::detail {

const DeviceBackend& sim_npu_backend() {
  static const UnavailableBackend backend("sim_npu", "this version of npu_train has no simulated NPU yet; use device=cpu on this machine");
  return backend;
}

}  // namespace npu_train::detail
