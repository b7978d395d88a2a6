// Runs onnxruntime through Python.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/outputs.hpp"

namespace npu_train::onnx {

/// Returns onnxruntime's version, and the outputs of the file for the fields of the batch; nullopt if `python3` cannot import onnxruntime.
/// Error(Data) with onnxruntime's message if it cannot run the file.
std::optional<std::pair<std::string, Outputs>> run_onnxruntime(const std::filesystem::path& file, const Batch& inputs);

}  // namespace npu_train::onnx
