// config.json of Hugging Face next to a file of weights: the network that the weights are of.
#pragma once

#include <filesystem>
#include <string>

#include "npu_train/core/config_table.hpp"
#include "npu_train/engine/parts.hpp"

namespace npu_train::detail {

// The config.json that belongs to a file or folder of weights; "" if there is none.
std::filesystem::path hub_config_of(const std::filesystem::path& weights);

// Whether weights of another network are an error, by the option `weights_strict`.
bool is_strict(const PartConfig& model);

// `model` with the options of the network of its weights' config.json where it leaves them open, and its name if it has none; those that
// the data may decide (classes, size of images) only if `all`. Nothing is checked: with_weights_options() does that.
PartConfig with_hub_options(PartConfig model, const Parts& parts, bool all);

// The same for a configuration as it is written, whose `model` may have weights and no name.
void fill_model_from_weights(ConfigNode& config, const Parts& parts);

}  // namespace npu_train::detail
