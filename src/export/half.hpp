// From an ONNX model in fp32 to one that computes in fp16.
#pragma once

#include "export/onnx_model.hpp"

namespace npu_train::onnx {

/// Weights and operators become fp16, with casts at the inputs and outputs, which keep their types. In fp32 stay: normalisation, softmax,
/// exponentials, logarithms, powers, roots, pooling by means, recurrent layers, reductions, what is computed from reductions alone (the
/// variance plus epsilon), and the nodes with keeps_fp32. Error(Usage) for a weight that fp16 cannot hold.
OnnxModel in_half_precision(const OnnxModel& model);

}  // namespace npu_train::onnx
