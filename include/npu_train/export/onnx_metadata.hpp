/// The entries that describe an exported model: its normalisation, class names and transforms (docs/export.md lists them).
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// The metadata_props of an ONNX file (key, value), in the order of the file. Error(Data) if it cannot be read or is damaged.
std::vector<std::pair<std::string, std::string>> onnx_metadata(const std::filesystem::path& file);

}  // namespace npu_train
