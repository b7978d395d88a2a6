/// Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022): the weights W of a network are frozen,
/// and selected linear layers compute W x + (alpha / rank) B A dropout(x) with trained A and B. Names, initial values and arithmetic are
/// those of Hugging Face's PEFT.
///
///   npu_train::apply_lora(model, {.rank = 8, .alpha = 16, .targets = {"attention.*"}});   // after the weights were loaded
///   trainer.fit(npu_train::classifier(model), train_data, val_data);
///   npu_train::merge_lora(model);                                                         // an ordinary model again
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

struct LoraOptions {
  int64_t rank = 0;                       ///< rank of A and B; 0: 8, or the rank of `from`
  double alpha = 0;                       ///< numerator of the scale alpha / rank; 0: the rank, or the alpha of `from`
  double dropout = 0;                     ///< dropout rate on the input of A, in training
  std::vector<std::string> targets{};     ///< name patterns of linear layers (name_pattern.hpp); empty: the layers of `from`
  std::vector<std::string> also_train{};  ///< name patterns of parameters that are also trained, such as a new head
  std::string from{};                     ///< folder of an initial adapter in PEFT's layout; "": a new adapter
  static const ConfigTable<LoraOptions>& config_table();
};

/// Throws Error(Usage) for options that contradict each other or are out of range.
void check_lora_options(const LoraOptions& options);

/// Result of apply_lora().
struct LoraReport {
  /// The resolved options, with rank and alpha set. They include those of an adapter in `from`, and `from` is then empty.
  LoraOptions options{};
  std::vector<std::string> layers{};  ///< names of the layers with an adapter
  int64_t trained = 0;                ///< number of trained elements: adapters and also_train
  int64_t total = 0;                  ///< number of elements of all parameters
  /// Returns a log line: "lora: 8 layers with adapters of rank 8, 20,480 of 134,208 parameters are trained".
  std::string str() const;
};

/// Returns the names of the linear layers that can have an adapter: modules of type npu_train::Linear. torch::nn::Linear cannot be extended
/// from outside.
std::vector<std::string> linear_layers(const torch::nn::Module& module);

/// Adds an adapter to each layer that matches `targets`, and freezes all other parameters except `also_train`. The initial values of A come
/// from the host's generator. Without `from` the outputs do not change, because B is zero. Error(Usage) for targets or
/// also_train without a match (the message lists some names), and for a model that already has adapters. Error(Checkpoint) if the adapter
/// in `from` belongs to another network. After an error, the model is unchanged.
LoraReport apply_lora(torch::nn::Module& module, const LoraOptions& options);
LoraReport apply_lora(Model& model, const LoraOptions& options);

/// Adds each adapter to the weight of its layer and removes the adapter. Frozen parameters stay frozen. Returns the number of layers.
int64_t merge_lora(torch::nn::Module& module);
int64_t merge_lora(Model& model);

/// Returns whether the tensors include adapters, with names that end in ".lora_A.weight" and ".lora_B.weight".
bool has_lora(const NamedTensors& tensors);

/// Returns the tensors of the model with merged adapters: LAYER.weight + scale B A in the wider dtype, without the adapters' tensors.
/// Error(Checkpoint) for an adapter whose layer or other matrix is missing, or whose sizes do not match.
NamedTensors merged_lora(const NamedTensors& tensors, double scale);

// Adapters as folders in the layout of Hugging Face's PEFT: adapter_config.json and adapter_model.safetensors (or .bin).

/// An adapter under the names of a model.
struct Adapter {
  /// Rank, alpha and dropout of the adapter. `targets` contains the layers that it adapts, and `also_train` the parameters of the model
  /// that it replaces.
  LoraOptions options{};
  NamedTensors tensors{};  ///< LAYER.lora_A.weight [rank, in], LAYER.lora_B.weight [out, rank], and the parameters of also_train
};

/// Returns whether the folder contains an adapter_config.json.
bool is_adapter_folder(const std::filesystem::path& folder);

/// Reads an adapter for `module`. The file may use the module's layer names or those of a known network of Hugging Face (weights.hpp).
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
