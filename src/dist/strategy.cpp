#include "npu_train/dist/strategy.hpp"

#include "npu_train/device/backend.hpp"

namespace npu_train {

void SingleDeviceStrategy::backward(const at::Tensor& loss, bool /*last*/) { backend_of(device_of(loss.device())).backward(loss); }

}  // namespace npu_train
