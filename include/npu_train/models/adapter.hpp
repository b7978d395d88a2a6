/// Adapters of lora.hpp as files: a folder in the layout of Hugging Face's PEFT, adapter_config.json and adapter_model.safetensors (or
/// .bin).
#pragma once

#include <filesystem>
#include <string>

#include "npu_train/io/safetensors.hpp"
#include "npu_train/models/lora.hpp"

namespace npu_train {

/// An adapter under the names of a model.
struct Adapter {
  /// rank, alpha and dropout; the names of the layers as targets, and of the tensors that replace parameters of the model as also_train.
  LoraOptions options{};
  NamedTensors tensors{};  ///< LAYER.lora_A.weight [rank, in], LAYER.lora_B.weight [out, rank], and the parameters of also_train
};

/// Whether the folder has an adapter_config.json.
bool is_adapter_folder(const std::filesystem::path& folder);

/// Reads an adapter for `module`, whose layers may have the names of the file, or those of a known network of Hugging Face's
/// (weight_names.hpp). No code in a file is executed. Error(Checkpoint) for a file that is missing or damaged, layers that the module does
/// not have, other sizes, a layer with only one of its matrices, and for adapters that are more than W + scale B A: DoRA, trained biases,
/// ranks that differ by layer.
Adapter load_adapter(const std::filesystem::path& folder, const torch::nn::Module& module);

/// Writes the adapters among the `tensors` of a model, with the names of Hugging Face's network if it is a known one, otherwise with its
/// own. `options` are those of apply_lora() with rank and alpha; `base` is written as base_model_name_or_path. Error(Usage) for tensors
/// without adapters, and for trained parameters that PEFT cannot store: those of a layer that has an adapter.
void save_adapter(const std::filesystem::path& folder, const NamedTensors& tensors, const LoraOptions& options,
                  const std::string& base = "");

}  // namespace npu_train
