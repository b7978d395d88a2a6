/// Pretrained weights from files.
#pragma once

#include <string>

#include "npu_train/io/safetensors.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/nn/weights.hpp"

namespace npu_train {

/// Tensors by name from
/// - a .safetensors file, or a .pth, .pt, .bin or .ckpt of PyTorch (read without executing code),
/// - an index of several such files next to it (model.safetensors.index.json, pytorch_model.bin.index.json),
/// - a checkpoint folder of npu_train (its model), or a folder of Hugging Face's with one of the files above.
/// Error(Data) or Error(Checkpoint) if it is none of these; Error(Checkpoint) for an index that names files outside its folder, files that
/// are missing, other indices, or a tensor twice.
NamedTensors read_weights_file(const std::string& path);

/// Reads the file into the model; Error(Checkpoint), with the path, as load_weights.
WeightsReport load_weights_file(Model& model, const std::string& path, const LoadWeightsOptions& options = {});

}  // namespace npu_train
