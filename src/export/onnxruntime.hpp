// onnxruntime, as a program of Python.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/outputs.hpp"

namespace npu_train::onnx {

/// Its version, and the outputs of the file for the fields of the batch; nothing if `python3` cannot import onnxruntime. Error(Data) with
/// its message if it cannot run the file.
std::optional<std::pair<std::string, Outputs>> run_onnxruntime(const std::filesystem::path& file, const Batch& inputs);

}  // namespace npu_train::onnx
