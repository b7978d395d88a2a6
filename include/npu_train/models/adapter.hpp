/// Reads and writes adapters of lora.hpp as folders in the layout of Hugging Face's PEFT: adapter_config.json and adapter_model.safetensors
/// (or .bin).
#pragma once

#include <filesystem>
#include <string>

#include "npu_train/io/safetensors.hpp"
#include "npu_train/models/lora.hpp"

namespace npu_train {

/// An adapter under the names of a model.
struct Adapter {
  /// Rank, alpha and dropout. The adapted layers are its targets, and the replaced parameters of the model its also_train.
  LoraOptions options{};
  NamedTensors tensors{};  ///< LAYER.lora_A.weight [rank, in], LAYER.lora_B.weight [out, rank], and the parameters of also_train
};

/// Returns whether the folder contains an adapter_config.json.
bool is_adapter_folder(const std::filesystem::path& folder);

/// Reads an adapter for `module`. The file may use the module's layer names or those of a known network of Hugging Face (weight_names.hpp).
/// No code in a file is executed. Error(Checkpoint) for a missing or damaged file, layers that the module does not have, other sizes, a
/// layer with only one of its matrices, and adapters that compute more than W + scale B A: DoRA, trained biases, ranks that differ by
/// layer.
Adapter load_adapter(const std::filesystem::path& folder, const torch::nn::Module& module);

/// Writes the adapters among the `tensors` of a model, under Hugging Face's names for a known network, otherwise under the model's.
/// `options` are those of apply_lora(), with rank and alpha; `base` becomes base_model_name_or_path. Error(Usage) if `tensors` contains no
/// adapters, and for trained parameters of a layer that has an adapter, which PEFT cannot store.
void save_adapter(const std::filesystem::path& folder, const NamedTensors& tensors, const LoraOptions& options,
                  const std::string& base = "");

}  // namespace npu_train
