// config.json of Hugging Face next to a file of weights: the options of a network that the shapes of its tensors do not determine.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"

namespace npu_train::detail {

// The config.json that belongs to a file or folder of weights; "" if there is none.
std::filesystem::path hub_config_of(const std::filesystem::path& weights);

struct HubDifference {
  std::string theirs;  // "num_attention_heads is 32"
  std::string here;    // "model.heads is 12"
  std::string key;     // "model.heads=32"; "" if no option of the model gives the network of the file
};

// Where the options of `model`, with defaults, are not those of the network of a config.json. Models other than the built-in gpt2, llama
// and vit, and files of other kinds of networks have no differences.
std::vector<HubDifference> hub_differences(const std::filesystem::path& config, const PartConfig& model);

// Error(Checkpoint) that lists the differences; a warning if they are permitted.
void check_hub_config(const std::filesystem::path& weights, const PartConfig& model, bool strict);

}  // namespace npu_train::detail
