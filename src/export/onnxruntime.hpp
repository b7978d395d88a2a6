// Runs onnxruntime through Python.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/base/batch.hpp"

namespace npu_train::onnx {

/// A file, and a batch with the inputs of its graph. The batch may have further fields.
struct FileRun {
  std::filesystem::path file;
  Batch inputs;
};

/// The outputs of a file, or the reason why onnxruntime cannot run it.
struct FileResult {
  Outputs outputs;
  std::string error;
};

struct OnnxruntimeResults {
  std::string version;
  std::vector<FileResult> files;
};

/// Runs files one after the other in one process of the Python that NPU_TRAIN_ONNX_PYTHON names, by default `python3`. Error(Device) if
/// that Python is missing or cannot import onnxruntime; Error(Data), with its message, if it fails otherwise.
OnnxruntimeResults run_onnxruntime(const std::vector<FileRun>& runs);

}  // namespace npu_train::onnx
