/// Export to TorchScript: a trained network as a file for torch.jit.load, for inference or training in Python and C++.
///
///   npu_train::export_torchscript(model, npu_train::example_batch(model.inputs), "model.pt");
///
/// As for ONNX, the forward runs at two values of each free size, in evaluation mode and without gradients, and its operators are recorded,
/// so that the batch stays free. The file contains libtorch's own operators, so every operator can be exported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/export/onnx.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

struct TorchScriptExportOptions {
  /// Names of the sizes (InputSpec::shape) that stay free in the file; the others are fixed to the example's. Empty: all but "height" and
  /// "width".
  std::vector<std::string> dynamic{};
  /// Metadata of the file, readable by torch.jit.load(path, _extra_files={key: ''}).
  std::vector<std::pair<std::string, std::string>> metadata{};
};

/// A written module. Its forward accepts the inputs in this order, and returns the only output, or a tuple of all outputs.
struct TorchScriptExport {
  uint64_t bytes = 0;
  std::vector<OnnxValue> inputs{}, outputs{};
  std::map<std::string, int64_t> operators{};  ///< number of operators by name ("aten::add.Tensor")
  /// Decisions of the forward that depended on values and are now fixed in the file.
  std::vector<std::string> warnings{};
};

/// Writes the model to `to`, completely or not at all. The module has the model's submodules, parameters and buffers, with their names and
/// dtypes, and is fixed to evaluation mode. The model must be on the CPU; its mode is restored.
///
/// Error(Usage) names operator, layer and remedy. Causes: an operator that draws random numbers or is unknown to TorchScript; a number that
/// the host reads; a write to a constant; a size that depends on a free size, but not as a multiple. Error(Checkpoint) if the file cannot
/// be written.
TorchScriptExport export_torchscript(const Model& model, const Batch& example, const std::filesystem::path& to,
                                     const TorchScriptExportOptions& options = {});

/// Compares the file, loaded by libtorch on the CPU, with the model on `inputs`. Loading executes the code in the file. Error(Data) if it
/// cannot be loaded or run.
FileComparison check_torchscript(const std::filesystem::path& file, const Model& model, const Batch& inputs,
                                 double tolerance = kOnnxTolerance);

}  // namespace npu_train
