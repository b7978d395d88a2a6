/// The backward pass of a training.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// DeviceBackend::backward() of the device of `loss`. Functions and hooks of the program run in it: an exception of theirs is Error(Usage)
/// at "backward".
void run_backward(const at::Tensor& loss);

}  // namespace npu_train
