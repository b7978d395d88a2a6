// Projects to scan: those of the folder projects/, and files that a test writes.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace npu_train::testing {

/// Returns the path of a project that is written like a real one. NAME.expected lists every place that must be found: file:line, rule,
/// text, and the replacement by a rewrite.
inline std::filesystem::path project(const std::string& name) {
  return std::filesystem::path(NPU_TRAIN_SOURCE_DIR) / "tests/tools/scan/projects" / name;
}
inline constexpr const char* kProjects[] = {"resnet_ddp", "detector", "llm_finetune", "cpp_classifier", "image_dp", "plain"};

/// Writes a file, and makes the folders above it.
inline void put(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace npu_train::testing
