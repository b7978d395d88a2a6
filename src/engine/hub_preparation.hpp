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
  std::string file;               // the file that describes the preparation
  std::vector<PartConfig> steps;  // steps with all sizes and numbers
};

// Reads timm's pretrained_cfg in config.json, or Hugging Face's preprocessor_config.json, in the folder of `weights`. `side` is the side of
// the model's images in pixels; all sizes in the file are scaled by the factor that leads to this side. Returns nullopt if the folder has
// neither. Error(Checkpoint) for a preparation that the transforms do not support; a filter that they do not support is replaced, with a
// warning.
std::optional<HubPreparation> hub_preparation(const std::filesystem::path& weights, int64_t side);

}  // namespace npu_train::detail
