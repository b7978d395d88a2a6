/// Keys of the section `model` that every model has in addition to its own: which weights are trained, which set of weights in a file is
/// loaded, and whether the model may have classes without data.
///
///   model: {name: llama_tiny, weights: base.safetensors, lora: {rank: 8, targets: [attention.*]}}
///   model: {name: resnet50, weights: resnet50.pth, freeze: [conv1, bn1, layer1]}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/registry.hpp"
#include "npu_train/engine/weight_set.hpp"
#include "npu_train/models/lora.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

struct Parts;

struct ModelTuning {
  std::vector<std::string> freeze{};    ///< name patterns of the parameters that are not trained (nn/module_state.hpp)
  std::optional<LoraOptions> lora{};    ///< low-rank adapters; if set, only they are trained
  WeightSet weights = WeightSet::Auto;  ///< the set of weights to load if a file or checkpoint has two sets
  bool allow_unused_classes = false;    ///< allows more outputs than the data have classes
};

/// The networks that a configuration can name. Each has the additional keys `freeze`, `unfreeze`, `lora`, `weights_key` and
/// `allow_unused_classes`, which are hidden from its factory; a network's own key with such a name takes precedence.
class ModelParts : public ModelRegistry {
 public:
  using ModelRegistry::ModelRegistry;

  std::vector<FieldInfo> describe(const std::string& name) const;
  Model make(const PartConfig& part, const std::string& path) const;
  PartConfig resolve(const PartConfig& part, const std::string& path, ConfigProblems& problems) const;
  /// Error(Usage) for invalid options.
  ModelTuning tuning(const PartConfig& part, const std::string& path) const;
  /// Returns the part without the additional keys.
  PartConfig without_tuning(const PartConfig& part) const;

 private:
  bool is_tuning_key(const std::string& model, const std::string& key) const;
};

/// Freezes parameters and adds adapters as configured in `part`; logs each in one line. Adapters are initialised from `seed`. The model's
/// weights must be loaded. If an adapter is read from `lora.from`, the returned part has the adapter's options instead, so that a
/// checkpoint does not need the file again. Errors: those of freeze_parameters() and apply_lora().
PartConfig tune(Model& model, const PartConfig& part, const Parts& parts, uint64_t seed);

/// Merges the adapter in the file `model.lora.from`, if that key is set, into the weights, for uses other than training.
void merge_adapter_of(Model& model, const PartConfig& part, const Parts& parts);

}  // namespace npu_train
