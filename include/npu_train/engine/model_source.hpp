/// Which model a command or a program computes with, and the one way to make it: of a checkpoint, or by its name with weights of a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/weight_set.hpp"
#include "npu_train/models/weights.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

/// Either `checkpoint`, or `model`.
struct ModelSource {
  std::string checkpoint{};              ///< a checkpoint, its checkpoints/ folder, or a run's folder
  std::vector<std::string> overrides{};  ///< changes of the checkpoint's configuration: "model.KEY=VALUE"

  PartConfig model{};     ///< name and options; `weights`, `weights_key` and `lora.from` are followed
  std::string weights{};  ///< file or folder, in place of model.weights; "" and no model.weights: the initial values of `seed`
  uint64_t seed = 0;

  std::optional<WeightSet> set{};  ///< in place of model.weights_key; of a checkpoint, Auto if it is not set

  /// What happens to weights that do not fill the model. FreshHead: a head that the weights do not have keeps its initial values. Reported:
  /// whatever is in `SourcedModel::report`; the adapter is merged only if the weights fit.
  enum class Fit { Complete, FreshHead, Reported };
  Fit fit = Fit::Complete;
};

struct SourcedModel {
  Model model{};                       ///< for inference: adapters are merged into the weights
  WeightsReport report{};              ///< of the weights; empty without any
  bool averages = false;               ///< the weights are averages (EMA)
  std::string checkpoint{};            ///< the folder from which the weights were read, if they are of npu_train
  std::string why{};                   ///< why it is this checkpoint (choose_checkpoint)
  std::vector<std::string> classes{};  ///< of that checkpoint: names of the classes; may be empty
  std::optional<RunConfig> run{};      ///< of a source with `checkpoint`
};

/// Makes the model. Error(Usage) for a source that names both or none, Error(Checkpoint) or Error(Data) for weights that cannot be read or
/// do not fit; the message names the options that they would fit.
SourcedModel model_from(const ModelSource& source, const Parts& parts);

}  // namespace npu_train
