// Reads ONNX files.
#pragma once

#include <filesystem>
#include <vector>

#include "export/onnx_model.hpp"

namespace npu_train::onnx {

/// The model in a file of write_onnx, with its external data. Error(Data) if it is no ONNX file, is damaged, or has what write_onnx does
/// not write (weights that are not raw bytes, operators of other domains).
OnnxModel read_onnx(const std::filesystem::path& path);

/// The files next to `path` that write_onnx wrote for the model there; none if there is no such model.
std::vector<std::filesystem::path> data_files_of(const std::filesystem::path& path);

}  // namespace npu_train::onnx
