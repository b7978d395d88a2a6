/// Checks of exported ONNX files: onnxruntime computes the file, and the outputs are compared with those of the model.
#pragma once

#include <filesystem>
#include <string>

#include "npu_train/base/batch.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// The deviation of a file's outputs from those of the model.
struct FileComparison {
  std::string by;         ///< program that computed the file: "onnxruntime 1.20.1", "libtorch"
  double difference = 0;  ///< largest difference of an output, relative to its largest absolute value
  double tolerance = 0;
  bool agrees() const { return difference <= tolerance; }
};

/// Tolerances for fp32 and fp16 files.
constexpr double kOnnxTolerance = 1e-5, kOnnxHalfTolerance = 2e-3;

/// Compares the file with the model on `inputs`. Use a batch size other than 2 and 3, which the export records. onnxruntime must be
/// installed in the Python that the variable NPU_TRAIN_ONNX_PYTHON names, by default `python3`. If it is not, Error(Device) begins with
/// "not checked: ". Error(Data) if it cannot run the file.
FileComparison check_onnx(const std::filesystem::path& file, const Model& model, const Batch& inputs, double tolerance);

}  // namespace npu_train
