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

/// The tensors of a file and their origin.
struct WeightsFile {
  NamedTensors tensors{};
  bool averages = false;                      ///< the tensors are averages
  std::string chosen{};                       ///< the chosen set, for a log: "the averages 'state_dict_ema'"; "" if the file has only one
  std::map<std::string, int64_t> integers{};  ///< integers in a .pth next to its tensors, such as model_args.n_head of nanoGPT
  std::string checkpoint{};                   ///< folder of the tensors, if it is a checkpoint of npu_train
  std::vector<std::string> classes{};         ///< class names of such a checkpoint, by output of the head; may be empty
};

/// Reads tensors by name from
/// - a .safetensors file, or a .pth, .pt, .bin or .ckpt of PyTorch (read without executing code),
/// - an index of several such files next to it (model.safetensors.index.json, pytorch_model.bin.index.json),
/// - a checkpoint folder of npu_train (its model, with merged adapters), its ema.safetensors (the same model with its averages), or a
///   Hugging Face folder with one of the files above.
/// A checkpoint of a run with `average.enabled` has two sets of weights. So does a file with `state_dict_ema` or `model_ema` next to
/// `state_dict` or `model`, as written by timm and torchvision's references. `set` chooses one of the two. Error(Data) or Error(Checkpoint)
/// if `path` is none of the above. Error(Checkpoint) if an index names files outside its folder, missing files, other indices, or a tensor
/// twice; or if `set` is Ema and there are no averages.
WeightsFile read_weights(const std::string& path, WeightSet set = WeightSet::Auto);
/// Returns only the tensors of read_weights().
NamedTensors read_weights_file(const std::string& path, WeightSet set = WeightSet::Auto);

struct WeightsFileOptions {
  bool strict = true;                  ///< as in LoadWeightsOptions::strict
  WeightSet set = WeightSet::Auto;     ///< as in read_weights()
  std::vector<std::string> classes{};  ///< names of the model's classes; empty: unknown
};

/// Reads the file for a configured model. Also Error(Checkpoint) if the file is from nanoGPT and its number of heads differs from the
/// model's (a warning with `weights_strict: false`). `set` defaults to model.weights_key. with_weights_options() checks the other options.
WeightsFile read_weights_for(const PartConfig& model, const Parts& parts, const std::string& path,
                             std::optional<WeightSet> set = std::nullopt);

/// Loads the file into the model. Error(Checkpoint), with the path, as in load_weights(). If the classes of both are known and differ, the
/// head receives the outputs of common classes by name, and other outputs keep their initial values. Error(Checkpoint) if the classes
/// differ and the model declares no head.
WeightsReport load_weights_file(Model& model, const std::string& path, const WeightsFileOptions& options = {});
/// Loads a file that has already been read; `path` is for messages.
WeightsReport load_weights_file(Model& model, WeightsFile file, const std::string& path, const WeightsFileOptions& options = {});

/// Completes `model` from Hugging Face's config.json next to the weights (or in their folder), because the shapes of weights do not
/// determine the number of heads and other options. Options that are not set get the values of the network in the file, except those that a
/// named size (llama_tiny) sets. A model without a name becomes that network. Error(Checkpoint) lists options that contradict the file, and
/// features of that network that ours lacks (a warning with `weights_strict: false`). Error(Usage) for a model without a name and without
/// such a file. Applies to built-in models with weights on the Hugging Face Hub; other models, and models without
/// weights, are unchanged. If `all` is false, options that the data may determine (classes, size of images) stay unset.
PartConfig with_weights_options(PartConfig model, const Parts& parts, const std::string& weights, bool all = true);

/// Returns the weights of a checkpoint, tied ones under each of their names. Adapters of model.lora are merged (models/lora.hpp), so that
/// the weights are those of the model without adapters. Error(Checkpoint), also if `set` is Ema but there are no averages.
NamedTensors checkpoint_weights(const std::string& checkpoint, WeightSet set = WeightSet::Auto);

/// Writes the adapters of a checkpoint in PEFT's layout (models/lora.hpp). `from` is a checkpoint, a checkpoints/ folder or a run's
/// folder. Error(Usage) for a run without model.lora.
void save_checkpoint_adapter(const std::string& from, const std::string& folder, WeightSet set = WeightSet::Auto);

}  // namespace npu_train
