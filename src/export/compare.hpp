// Outputs of a model and of its file.
#pragma once

#include <string>

#include "npu_train/base/outputs.hpp"
#include "npu_train/export/onnx_check.hpp"

namespace npu_train::onnx {

/// The largest difference over all outputs; infinite for NaN and for other shapes.
FileComparison compared(const std::string& by, const Outputs& expected, const Outputs& given, double tolerance);

}  // namespace npu_train::onnx
