/// Pretrained weights from files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/core/config_table.hpp"
#include "npu_train/engine/weight_set.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/models/weights.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

struct Parts;

/// The tensors of a file, and their origin.
struct WeightsFile {
  NamedTensors tensors{};
  bool averages = false;  ///< they are moving averages (EMA)
  std::string chosen{};   ///< of a file with two sets, for a log: "the averages 'state_dict_ema'"; "" if it has only one
  std::map<std::string, int64_t> integers{};  ///< whole numbers that a .pth has next to its tensors: model_args.n_head of nanoGPT
  std::string checkpoint{};                   ///< the folder, if it is a checkpoint of npu_train
  std::vector<std::string> classes{};         ///< of such a checkpoint: the names of its classes, by output of the head; may be empty
};

/// Tensors by name from
/// - a .safetensors file, or a .pth, .pt, .bin or .ckpt of PyTorch (read without executing code),
/// - an index of several such files next to it (model.safetensors.index.json, pytorch_model.bin.index.json),
/// - a checkpoint folder of npu_train (its model, with merged adapters), or a folder of Hugging Face's with one of the files above.
/// Two sets of weights are in a checkpoint of a run with `ema.enabled`, and in a file with `state_dict_ema` or `model_ema` next to
/// `state_dict` or `model`, as timm and torchvision's references write it; `set` chooses one.
/// Error(Data) or Error(Checkpoint) if it is none of these; Error(Checkpoint) for an index that names files outside its folder, files that
/// are missing, other indices, or a tensor twice, and if there are no averages and `set` is Ema.
WeightsFile read_weights(const std::string& path, WeightSet set = WeightSet::Auto);
/// The tensors of read_weights() alone.
NamedTensors read_weights_file(const std::string& path, WeightSet set = WeightSet::Auto);

struct WeightsFileOptions {
  bool strict = true;                  ///< as LoadWeightsOptions::strict
  WeightSet set = WeightSet::Auto;     ///< as read_weights()
  std::vector<std::string> classes{};  ///< the names of the model's classes; empty: unknown
};

/// Reads the file for a configured model. Error(Checkpoint) also if the file is of nanoGPT and has another number of heads than the model;
/// with `weights_strict: false` a warning. `set` is by default that of model.weights_key. with_weights_options() compares the rest.
WeightsFile read_weights_for(const PartConfig& model, const Parts& parts, const std::string& path,
                             std::optional<WeightSet> set = std::nullopt);

/// Reads the file into the model; Error(Checkpoint), with the path, as load_weights. If the classes of both are known and differ, the
/// head gets the outputs of the classes that both have, by name; the other outputs keep their initial values. Error(Checkpoint) if the
/// model does not declare its head.
WeightsReport load_weights_file(Model& model, const std::string& path, const WeightsFileOptions& options = {});
/// The same for a file that is read; `path` is for messages.
WeightsReport load_weights_file(Model& model, WeightsFile file, const std::string& path, const WeightsFileOptions& options = {});

/// The model of a file of weights, if Hugging Face's config.json is next to it (or in the folder): the shapes of weights do not determine
/// the number of heads and others. Options that are open have the values of that network; of a named size (llama_tiny) its sizes are not
/// open. A model without a name is the one that the file describes. Error(Checkpoint) names what is set otherwise, and what that network
/// does and ours cannot; with `weights_strict: false` it is a warning. Error(Usage) for a model without a name and without such a file. For
/// the built-in models whose weights are on Hugging Face's Hub (models/hub_network.hpp); others, and models without weights, stay as they
/// are. With `all` false, options that the data may decide (classes, size of images) stay open.
PartConfig with_weights_options(PartConfig model, const Parts& parts, const std::string& weights, bool all = true);

/// The weights of a checkpoint under every name of a tied one. Adapters of model.lora are merged (models/lora.hpp), so that they are those
/// of the model without. Error(Checkpoint), also if it has no averages and `set` is Ema.
NamedTensors checkpoint_weights(const std::string& checkpoint, WeightSet set = WeightSet::Auto);

/// Writes the adapters of a checkpoint, its checkpoints/ folder or a run's folder, in PEFT's layout (models/adapter.hpp). Error(Usage) for
/// a run without model.lora.
void save_checkpoint_adapter(const std::string& from, const std::string& folder, WeightSet set = WeightSet::Auto);

}  // namespace npu_train
