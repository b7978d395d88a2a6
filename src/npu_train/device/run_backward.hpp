/// The backward pass of a training.
#pragma once

#include <ATen/core/Tensor.h>

namespace npu_train {

/// Calls DeviceBackend::backward() for the device of `loss`. Functions and hooks of the program run inside; an exception from them is an
/// Error(Usage) at "backward".
void run_backward(const at::Tensor& loss);

}  // namespace npu_train
