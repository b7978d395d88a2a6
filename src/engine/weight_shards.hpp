// Weights divided into several files.
#pragma once

#include <filesystem>

#include "npu_train/io/safetensors.hpp"

namespace npu_train::detail {

// True for the name of an index, such as model.safetensors.index.json and pytorch_model.bin.index.json.
bool is_weight_index(const std::filesystem::path& path);

// Returns the weights of a folder in Hugging Face's layout: its index or its only file; "" if it has neither.
std::filesystem::path weights_in_folder(const std::filesystem::path& folder);

// Reads all tensors of the files that an index names, in index order. Error(Checkpoint) if it is not a valid index; if it names files that
// are outside of its folder, missing or not weights (such as another index); and if a tensor is not in its file, or is in two files.
NamedTensors load_weight_shards(const std::filesystem::path& index);

}  // namespace npu_train::detail
