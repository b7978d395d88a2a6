// Image preparation that the files next to pretrained weights describe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"

namespace npu_train::detail {

struct HubPreparation {
  std::string file;               // the file that describes it
  std::vector<PartConfig> steps;  // steps with all sizes and numbers
};

// Reads timm's pretrained_cfg in config.json, or Hugging Face's preprocessor_config.json, in the folder of `weights`. `side`: pixels of the
// model's images; other sizes of the file are scaled by the same factor. Returns nullopt if there is neither. Error(Checkpoint) for a
// preparation that the transforms do not support; a filter that they do not support is replaced, with a warning.
std::optional<HubPreparation> hub_preparation(const std::filesystem::path& weights, int64_t side);

}  // namespace npu_train::detail
