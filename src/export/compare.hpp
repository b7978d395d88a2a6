// Compares the outputs of a model with those of its file.
#pragma once

#include <string>

#include "npu_train/base/outputs.hpp"
#include "npu_train/export/onnx_check.hpp"

namespace npu_train::onnx {

/// Returns the largest difference over all outputs; infinite for NaN and for different shapes.
FileComparison compared(const std::string& by, const Outputs& expected, const Outputs& given, double tolerance);

}  // namespace npu_train::onnx
