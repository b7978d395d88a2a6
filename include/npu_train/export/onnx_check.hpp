/// Checks of exported ONNX files: the file is read back and its outputs are compared with those of the model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/outputs.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// The outputs of an exported model for the inputs of a batch, computed by libtorch's operators on the CPU, one node after the other. For
/// checks, not for speed. Reads files of export_onnx: Error(Data) for a damaged one, and for operators that export_onnx does not write.
Outputs run_onnx(const std::filesystem::path& file, const Batch& inputs);

/// How far the outputs of a file are from those of the model.
struct FileComparison {
  std::string by;         ///< what computed the file: "npu_train", "onnxruntime 1.20.1"
  double difference = 0;  ///< largest difference of an output, relative to its largest absolute value
  double tolerance = 0;
  bool agrees() const { return difference <= tolerance; }
};

/// The tolerance for fp32 and for fp16 files: 1e-5, 2e-3.
constexpr double kOnnxTolerance = 1e-5, kOnnxHalfTolerance = 2e-3;

/// Compares the file with the model on `inputs`, by run_onnx and, if the program `python3` can import it, by onnxruntime. Use a batch size
/// other than 2 and 3, which the export records. Error(Data) if a runtime cannot run the file.
std::vector<FileComparison> check_onnx(const std::filesystem::path& file, const Model& model, const Batch& inputs, double tolerance);

}  // namespace npu_train
