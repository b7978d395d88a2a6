// Converts an ONNX model from fp32 to fp16.
#pragma once

#include "export/onnx_model.hpp"

namespace npu_train::onnx {

/// Returns the model with fp16 weights and operators, and with casts at the inputs and outputs, which keep their types. The following stay
/// in fp32: normalisation, softmax, exponentials, logarithms, powers, roots, mean pooling, recurrent layers, reductions, values computed
/// only from reductions (variance plus epsilon), and nodes with keeps_fp32. Error(Usage) for a weight outside the range of fp16.
OnnxModel in_half_precision(const OnnxModel& model);

}  // namespace npu_train::onnx
