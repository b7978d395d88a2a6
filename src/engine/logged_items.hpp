// Converts tensors to the forms in which loggers store them.
#pragma once

#include <ATen/core/Tensor.h>

#include "npu_train/engine/logger.hpp"

namespace npu_train::detail {

/// Encodes `image`, which must have passed the checks of TrainLoop::log_image(). Values outside of 0 to 1 are clamped, and NaN is 0.
/// Error(Device) in a build without images (NPU_TRAIN_IMAGES).
LoggedImage logged_image(const at::Tensor& image);

/// Counts `values` between TensorFlow's limits: 1e-12 times 1.1^k, with both signs (InitDefaultBuckets in
/// tensorflow/core/lib/histogram/histogram.cc).
LoggedHistogram logged_histogram(const at::Tensor& values);

}  // namespace npu_train::detail
