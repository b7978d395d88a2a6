// Projects to scan: those of the folder projects/, and files that a test writes.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace npu_train::testing {

/// Projects as people write them; NAME.expected lists every place that has to be found: file:line, rule, text, what a rewrite puts there.
inline std::filesystem::path project(const std::string& name) {
  return std::filesystem::path(NPU_TRAIN_SOURCE_DIR) / "tests/tools/scan/projects" / name;
}
inline constexpr const char* kProjects[] = {"resnet_ddp", "detector", "llm_finetune", "cpp_classifier", "image_dp", "plain"};

/// Writes a file and the folders above it.
inline void put(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace npu_train::testing
