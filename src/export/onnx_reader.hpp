// Reads ONNX files.
#pragma once

#include <filesystem>
#include <vector>

#include "export/onnx_model.hpp"

namespace npu_train::onnx {

/// Reads a file of write_onnx with its external data. Error(Data) if it is not an ONNX file, is damaged, or has content that write_onnx
/// does not write (weights that are not raw bytes, operators of other domains).
OnnxModel read_onnx(const std::filesystem::path& path);

/// Returns the data files next to `path` that write_onnx wrote for the model there; none without such a model.
std::vector<std::filesystem::path> data_files_of(const std::filesystem::path& path);

}  // namespace npu_train::onnx
