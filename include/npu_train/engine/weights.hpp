/// Pretrained weights from files.
#pragma once

#include <string>

#include "npu_train/core/config_table.hpp"
#include "npu_train/io/safetensors.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/nn/weights.hpp"

namespace npu_train {

struct Parts;

/// Tensors by name from
/// - a .safetensors file, or a .pth, .pt, .bin or .ckpt of PyTorch (read without executing code),
/// - an index of several such files next to it (model.safetensors.index.json, pytorch_model.bin.index.json),
/// - a checkpoint folder of npu_train (its model, with merged adapters), or a folder of Hugging Face's with one of the files above.
/// Error(Data) or Error(Checkpoint) if it is none of these; Error(Checkpoint) for an index that names files outside its folder, files that
/// are missing, other indices, or a tensor twice.
NamedTensors read_weights_file(const std::string& path);

/// Reads the file into the model; Error(Checkpoint), with the path, as load_weights.
WeightsReport load_weights_file(Model& model, const std::string& path, const LoadWeightsOptions& options = {});

/// Compares the options of a configured model with Hugging Face's config.json next to its file of weights (or in the folder), if there is
/// one: the shapes of weights do not determine the number of heads and others. Error(Checkpoint) names what differs, and the options to
/// set; with `weights_strict: false` it is a warning. Only for the built-in gpt2, llama and vit.
void check_weights_options(const PartConfig& model, const Parts& parts, const std::string& weights);

/// The weights of a checkpoint under every name of a tied one. Adapters of model.lora are merged (nn/lora.hpp), so that they are those of
/// the model without. With `averages` those of the EMA take the place of the parameters, if there are any. Error(Checkpoint).
NamedTensors checkpoint_weights(const std::string& checkpoint, bool averages = false);

/// Writes the adapters of a checkpoint, its checkpoints/ folder or a run's folder, in PEFT's layout (nn/adapter.hpp). Error(Usage) for a
/// run without model.lora.
void save_checkpoint_adapter(const std::string& from, const std::string& folder);

}  // namespace npu_train
