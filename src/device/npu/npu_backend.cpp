#include "device/generic_backend.hpp"
#include "device/unavailable_backend.hpp"

namespace npu_train::detail {

const DeviceBackend& npu_backend() {
  static const UnavailableBackend backend(
      "npu", "this version of npu_train does not drive Ascend NPUs yet; use device=cuda or device=cpu on this machine");
  return backend;
}

}  // namespace npu_train::detail
