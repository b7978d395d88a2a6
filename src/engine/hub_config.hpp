// Hugging Face's config.json next to a weights file, which describes the network.
#pragma once

#include <filesystem>
#include <string>

#include "npu_train/core/config_table.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {

// Limits for the JSON files next to weights, which are untrusted.
inline constexpr JsonLimits kHubLimits{.depth = 32, .values = 200'000, .max_bytes = uint64_t{8} << 20};

// Returns the file `name` in the folder of weights, or next to a file of weights; "" if there is none.
std::filesystem::path file_of_weights(const std::filesystem::path& weights, const char* name);
// Returns the config.json of these weights; "" if there is none.
std::filesystem::path hub_config_of(const std::filesystem::path& weights);

// Returns the option `weights_strict`: whether weights of another network are an error.
bool is_strict(const PartConfig& model);

// Fills in the options of `model` that are not set, and its name if it has none, from the config.json of its weights. Fills in options that
// the data may determine (classes, size of images) only if `all`. Checks nothing: see with_weights_options().
PartConfig with_hub_options(PartConfig model, const Parts& parts, bool all);

// Fills in the section `model` of an unresolved configuration from its weights. The section may have weights but no name.
void fill_model_from_weights(ConfigNode& config, const Parts& parts);

}  // namespace npu_train::detail
