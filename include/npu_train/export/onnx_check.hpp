/// Checks of exported ONNX files: the file is read back and its outputs are compared with those of the model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/outputs.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Runs an exported model on the inputs of a batch, node by node, with libtorch's operators on the CPU; meant for checks, not for speed.
/// Reads files of export_onnx: Error(Data) for a damaged file, and for operators that export_onnx does not write.
Outputs run_onnx(const std::filesystem::path& file, const Batch& inputs);

/// The deviation of a file's outputs from those of the model.
struct FileComparison {
  std::string by;         ///< runtime of the file: "npu_train", "onnxruntime 1.20.1"
  double difference = 0;  ///< largest absolute difference in an output, relative to its largest absolute value
  double tolerance = 0;
  bool agrees() const { return difference <= tolerance; }
};

/// Tolerances for fp32 and fp16 files.
constexpr double kOnnxTolerance = 1e-5, kOnnxHalfTolerance = 2e-3;

/// Compares the file with the model on `inputs`, using run_onnx and, if `python3` can import it, onnxruntime. Use a batch size other than 2
/// and 3, at which the export records. Error(Data) if a runtime cannot run the file.
std::vector<FileComparison> check_onnx(const std::filesystem::path& file, const Model& model, const Batch& inputs, double tolerance);

}  // namespace npu_train
