/// Low-rank adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022): the weights W of a network stay as they
/// are, and selected linear layers compute W x + (alpha / rank) B A dropout(x), of which only A and B are trained. Names, first values and
/// arithmetic are those of Hugging Face's PEFT.
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
  int64_t rank = 0;                       ///< of A and B; 0: 8, or that of `from`
  double alpha = 0;                       ///< the product is scaled by alpha / rank; 0: the rank, or that of `from`
  double dropout = 0;                     ///< rate on the input of A, in training
  std::vector<std::string> targets{};     ///< patterns for names of linear layers (name_pattern.hpp); empty: those of `from`
  std::vector<std::string> also_train{};  ///< patterns for names of parameters that are trained too, such as a new head
  std::string from{};                     ///< folder with an adapter to start with, in PEFT's layout (adapter.hpp); "": a new one
  static const ConfigTable<LoraOptions>& config_table();
};

/// Error(Usage) for options that contradict each other or are out of range.
void check_lora_options(const LoraOptions& options);

/// What apply_lora() did.
struct LoraReport {
  /// With the values that were left open: rank and alpha; those of an adapter in `from`, which is then empty.
  LoraOptions options{};
  std::vector<std::string> layers{};  ///< those that have an adapter
  int64_t trained = 0;                ///< numbers of elements: of the adapters and of also_train
  int64_t total = 0;                  ///< of all parameters
  /// For a log: "lora: 8 layers with adapters of rank 8, 20,480 of 134,208 parameters are trained".
  std::string str() const;
};

/// Names of the linear layers that can have an adapter: the modules npu_train::Linear, and not torch::nn::Linear, whose computation cannot
/// be extended from outside.
std::vector<std::string> linear_layers(const torch::nn::Module& module);

/// Gives the layers that `targets` matches an adapter, and freezes everything else but `also_train`. The initial values of A are drawn from
/// the host's generator (own_generator.hpp). Without `from` the outputs do not change, because B is zero.
/// Error(Usage) for targets or also_train that match nothing, with some names, and for a model that has adapters; Error(Checkpoint) for an
/// adapter in `from` of another network. The model is unchanged then.
LoraReport apply_lora(torch::nn::Module& module, const LoraOptions& options);
LoraReport apply_lora(Model& model, const LoraOptions& options);

/// Adds each adapter to the weight of its layer and removes it. Parameters stay frozen or trained as they are. Returns the number of
/// layers.
int64_t merge_lora(torch::nn::Module& module);
int64_t merge_lora(Model& model);

/// Whether these are the tensors of a model with adapters, whose names end in ".lora_A.weight" and ".lora_B.weight".
bool has_lora(const NamedTensors& tensors);

/// The tensors of the model with merged adapters: LAYER.weight + scale B A, in the wider of the dtypes, without those of the adapters.
/// Error(Checkpoint) for an adapter without its layer, its other half or the right sizes.
NamedTensors merged_lora(const NamedTensors& tensors, double scale);

}  // namespace npu_train
