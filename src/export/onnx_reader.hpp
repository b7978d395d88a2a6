// Finds the data files of ONNX models.
#pragma once

#include <filesystem>
#include <vector>

namespace npu_train::onnx {

/// Returns the data files that write_onnx wrote next to the model at `path`; empty if `path` is no such model.
std::vector<std::filesystem::path> data_files_of(const std::filesystem::path& path);

}  // namespace npu_train::onnx
