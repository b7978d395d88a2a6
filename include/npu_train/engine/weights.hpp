/// Pretrained weights from files.
#pragma once

#include <string>

#include "npu_train/io/safetensors.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/nn/weights.hpp"

namespace npu_train {

/// Tensors by name from a .safetensors file, a .pth, .pt, .bin or .ckpt of PyTorch (read without executing code), or a checkpoint
/// folder of npu_train (its model). Error(Data) or Error(Checkpoint) if it is none of these.
NamedTensors read_weights_file(const std::string& path);

/// Reads the file into the model; Error(Checkpoint), with the path, as load_weights.
WeightsReport load_weights_file(Model& model, const std::string& path, const LoadWeightsOptions& options = {});

}  // namespace npu_train
