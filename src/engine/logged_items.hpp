// Tensors in the forms in which loggers keep them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "npu_train/engine/logger.hpp"

namespace npu_train::detail {

/// Error(Usage) with `name` unless the image has the form that TrainLoop::log_image() describes. Values outside of 0 to 1 are clamped, and
/// NaN is 0.
LoggedImage logged_image(const std::string& name, const at::Tensor& image);

/// The limits are TensorFlow's: 1e-12 times 1.1^k, with both signs (InitDefaultBuckets in tensorflow/core/lib/histogram/histogram.cc).
/// Error(Usage) with `name` for a tensor without elements.
LoggedHistogram logged_histogram(const std::string& name, const at::Tensor& values);

}  // namespace npu_train::detail
