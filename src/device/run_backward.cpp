#include "npu_train/device/run_backward.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/device.hpp"

namespace npu_train {

void run_backward(const at::Tensor& loss) {
  translated("backward", ErrorKind::Usage, [&] { backend_of(device_of(loss.device())).backward(loss); });
}

}  // namespace npu_train
