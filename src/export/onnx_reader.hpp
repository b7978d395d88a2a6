// Finds the data files of ONNX models.
#pragma once

#include <filesystem>
#include <vector>

namespace npu_train::onnx {

/// Returns the data files next to `path` that write_onnx wrote for the model there; none without such a model.
std::vector<std::filesystem::path> data_files_of(const std::filesystem::path& path);

}  // namespace npu_train::onnx
