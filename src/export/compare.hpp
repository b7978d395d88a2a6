// Compares the outputs of a model with those of its file.
#pragma once

#include <string>

#include "npu_train/base/batch.hpp"
#include "npu_train/export/onnx.hpp"

namespace npu_train::onnx {

/// Returns the largest difference over all outputs; infinite for NaN and for different shapes.
FileComparison compared(const std::string& by, const Outputs& expected, const Outputs& given, double tolerance);

}  // namespace npu_train::onnx
