/// Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022): the weights W of a network are frozen,
/// and selected linear layers compute W x + (alpha / rank) B A dropout(x) with trained A and B. Names, initial values and arithmetic are
/// those of Hugging Face's PEFT.
///
///   npu_train::apply_lora(model, {.rank = 8, .alpha = 16, .targets = {"attention.*"}});   // after the weights were loaded
///   trainer.fit(npu_train::classifier(model), train_data, val_data);
///   npu_train::merge_lora(model);                                                         // an ordinary model again
#pragma once

#include <cstdint>
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
  std::string from{};                     ///< folder of an initial adapter in PEFT's layout (adapter.hpp); "": a new adapter
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
/// from the host's generator (own_generator.hpp). Without `from` the outputs do not change, because B is zero. Error(Usage) for targets or
/// also_train without a match (the message lists some names), and for a model that already has adapters. Error(Checkpoint) if the adapter
/// in `from` belongs to another network. After an error, the model is unchanged.
LoraReport apply_lora(torch::nn::Module& module, const LoraOptions& options);
LoraReport apply_lora(Model& model, const LoraOptions& options);

/// Adds each adapter to the weight of its layer and removes it; parameters stay frozen or trained. Returns the number of layers.
int64_t merge_lora(torch::nn::Module& module);
int64_t merge_lora(Model& model);

/// Returns whether the tensors include adapters, with names that end in ".lora_A.weight" and ".lora_B.weight".
bool has_lora(const NamedTensors& tensors);

/// Returns the tensors of the model with merged adapters: LAYER.weight + scale B A in the wider dtype, without the adapters' tensors.
/// Error(Checkpoint) for an adapter whose layer or other matrix is missing, or whose sizes do not match.
NamedTensors merged_lora(const NamedTensors& tensors, double scale);

}  // namespace npu_train
