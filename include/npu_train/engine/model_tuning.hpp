/// The keys of the section `model` that every model has, whatever its own keys are: which of its weights are trained, which weights of a
/// file it begins with, and whether it may have classes that the data do not have.
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
  std::vector<std::string> freeze{};    ///< patterns for names of parameters that are not trained (nn/freezing.hpp)
  std::optional<LoraOptions> lora{};    ///< low-rank adapters, which alone are trained
  WeightSet weights = WeightSet::Auto;  ///< of a file or checkpoint with two sets
  bool allow_unused_classes = false;    ///< more outputs than the data have classes are no error
};

/// The networks that a configuration can name. In addition to its own keys each has `freeze`, `lora`, `weights_key` and
/// `allow_unused_classes`, which its factory does not see; a network with a key of such a name keeps its own.
class ModelParts : public ModelRegistry {
 public:
  using ModelRegistry::ModelRegistry;

  std::vector<FieldInfo> describe(const std::string& name) const;
  Model make(const PartConfig& part, const std::string& path) const;
  PartConfig resolve(const PartConfig& part, const std::string& path, ConfigProblems& problems) const;
  /// Error(Usage) for invalid options.
  ModelTuning tuning(const PartConfig& part, const std::string& path) const;
  /// The part without these keys.
  PartConfig without_tuning(const PartConfig& part) const;

 private:
  bool is_tuning_key(const std::string& model, const std::string& key) const;
};

/// Freezes parameters and adds adapters as `part` has it, and logs a line for each. The initial values of adapters follow from `seed`. The
/// weights of the model must be loaded. An adapter of `from` is read; in the returned part the adapter's own options have its place, so
/// that a checkpoint with it does not need the file again. Errors: those of freeze_parameters() and apply_lora().
PartConfig tune(Model& model, const PartConfig& part, const Parts& parts, uint64_t seed);

/// For uses without a training: the adapter that `model.lora.from` names, merged into the weights. Without it nothing is done.
void merge_adapter_of(Model& model, const PartConfig& part, const Parts& parts);

}  // namespace npu_train
