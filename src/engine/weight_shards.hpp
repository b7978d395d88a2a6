// Weights that are divided into several files.
#pragma once

#include <filesystem>

#include "npu_train/io/safetensors.hpp"

namespace npu_train::detail {

// True for names such as model.safetensors.index.json and pytorch_model.bin.index.json.
bool is_weight_index(const std::filesystem::path& path);

// The weights of a folder in Hugging Face's layout: its index, or its one file; "" if it has neither.
std::filesystem::path weights_in_folder(const std::filesystem::path& folder);

// All tensors of the files that an index names, in their order in the index. Error(Checkpoint) for an index that is not one, names files
// outside its folder, files that are missing or are no weights (such as another index), or tensors that are not in their file; for tensors
// that are in two files.
NamedTensors load_weight_shards(const std::filesystem::path& index);

}  // namespace npu_train::detail
