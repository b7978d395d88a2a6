/// A TorchScript module of Python (torch.jit.script or torch.jit.trace, saved by torch.jit.save) as a model that trains.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/nn/model.hpp"

namespace npu_train {

struct TorchScriptOptions {
  std::string path{};          ///< file of torch.jit.save
  bool allow_code = false;     ///< the file contains code, which runs: only for files that you trust. Not taken from a checkpoint.
  int64_t num_classes = 1000;  ///< outputs of the module
  int64_t image_size = 224;    ///< pixels of a side; for summaries, predictions and benchmarks
  int64_t channels = 3;        ///< of the input
  std::string weights{};       ///< file with initial weights; "": those of the module
  bool weights_strict = true;  ///< weights of another network are an error; false: loads the matching tensors
  static const ConfigTable<TorchScriptOptions>& config_table();
};

/// Input [N, channels, H, W]; the module must return logits [N, num_classes]. Its parameters and buffers have their names in Python and are
/// trained and saved as those of every other model. A traced module may have the batch size and the mode of its trace in it, unlike a
/// scripted one. Activation checkpointing by blocks is not available.
/// Error(Usage) without allow_code, for a file that is not TorchScript, and for a module without parameters (torch.jit.freeze removes
/// them).
Model torchscript(const TorchScriptOptions& options);

/// The module of a model of torchscript(), with its present weights on the CPU in evaluation mode, as the bytes of a file for
/// torch.jit.load: write_file_atomic(path, torchscript_bytes(model)). Error(Usage) for another model.
std::string torchscript_bytes(const Model& model);

}  // namespace npu_train
