#include "npu_train/dist/strategy.hpp"

#include <ATen/core/grad_mode.h>

#include "npu_train/device/run_backward.hpp"

namespace npu_train {

// Without shards a slice is the complete parameter.
void Strategy::gather_slices(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < whole.size(); ++i)
    if (whole[i].defined() && !whole[i].is_same(slices[i])) whole[i].detach().copy_(slices[i]);
}

void SingleDeviceStrategy::backward(const at::Tensor& loss, bool /*last*/) { run_backward(loss); }

}  // namespace npu_train
