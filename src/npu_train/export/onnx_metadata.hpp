/// Metadata of an exported model: its normalisation, class names and transforms (listed in docs/export.md).
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// Returns the metadata_props of an ONNX file (key, value), in file order. Error(Data) if it cannot be read or is damaged.
std::vector<std::pair<std::string, std::string>> onnx_metadata(const std::filesystem::path& file);

}  // namespace npu_train
