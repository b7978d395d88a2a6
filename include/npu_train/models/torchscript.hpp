/// A Python TorchScript module (torch.jit.script or torch.jit.trace, saved with torch.jit.save) as a trainable model.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct TorchScriptOptions {
  std::string path{};          ///< file written by torch.jit.save
  bool allow_code = false;     ///< the code in the file is executed: set it only for files that you trust. Not restored from checkpoints.
  int64_t num_classes = 1000;  ///< number of outputs of the module
  int64_t image_size = 224;    ///< width and height in pixels, for summaries, predictions and benchmarks
  int64_t channels = 3;        ///< channels of the input
  std::string weights{};       ///< file with initial weights; "": the module's own
  bool weights_strict = true;  ///< true: weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<TorchScriptOptions>& config_table();
};

/// Input [N, channels, H, W]; the module must return logits [N, num_classes]. Parameters and buffers keep their Python names, and are
/// trained and saved as in every other model. A traced module, unlike a scripted one, may have the batch size and the mode of its trace
/// built in. Activation checkpointing by blocks is not available. Error(Usage) without allow_code, for a file that is not TorchScript, and
/// for a module without parameters (torch.jit.freeze removes them).
Model torchscript(const TorchScriptOptions& options);

/// Returns the module of a torchscript() model with its current weights, on the CPU and in evaluation mode, as the bytes of a file for
/// torch.jit.load: write_file_atomic(path, torchscript_bytes(model)). Error(Usage) for another model.
std::string torchscript_bytes(const Model& model);

}  // namespace npu_train
