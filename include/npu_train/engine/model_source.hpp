/// Where a model comes from: a checkpoint, a name with weights from a file, or a name with initial weights from a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/weight_set.hpp"
#include "npu_train/models/weights.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Set either `checkpoint` or `model`.
struct ModelSource {
  std::string checkpoint{};              ///< a checkpoint, its checkpoints/ folder, or a run's folder
  std::vector<std::string> overrides{};  ///< changes to the checkpoint's configuration: "model.KEY=VALUE"

  PartConfig model{};     ///< name and options, including `weights`, `weights_key` and `lora.from`
  std::string weights{};  ///< file or folder of the weights, overrides model.weights; if both are empty: initial values from `seed`
  uint64_t seed = 0;

  std::optional<WeightSet> set{};  ///< overrides model.weights_key; for a checkpoint, unset means Auto

  /// Handling of weights that do not fill the model. FreshHead: a head without weights keeps its initial values. Reported: never an error,
  /// see `SourcedModel::report`; the adapter is then merged only if the weights fit.
  enum class Fit { Complete, FreshHead, Reported };
  Fit fit = Fit::Complete;
};

struct SourcedModel {
  Model model{};                       ///< for inference: adapters are merged
  WeightsReport report{};              ///< report on the loaded weights; empty if none were loaded
  bool averages = false;               ///< the weights are averages
  std::string checkpoint{};            ///< folder of the weights, if it is a checkpoint of npu_train
  std::string weights{};               ///< file or folder of the weights, for a source with `model`
  std::string why{};                   ///< reason for choosing this checkpoint (choose_checkpoint)
  std::vector<std::string> classes{};  ///< class names of the checkpoint; may be empty
  std::optional<RunConfig> run{};      ///< configuration, for a source with `checkpoint`
};

/// Makes the model. Error(Usage) if the source sets both or neither. Error(Checkpoint) or Error(Data) for weights that cannot be read or do
/// not fit; the message names the options with which they would fit.
SourcedModel model_from(const ModelSource& source, const Parts& parts);

/// Returns the model that `part` names. Its initial weights depend only on `seed`, not on draws of other threads; they equal those after
/// torch::manual_seed(seed) in a single-threaded program. The CPU's default generator advances as if it had drawn the weights. Errors:
/// those of the model's factory.
Model make_model(const PartConfig& part, const Parts& parts, uint64_t seed);

}  // namespace npu_train
