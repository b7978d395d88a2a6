/// Export to TorchScript: a trained network as a file for torch.jit.load in Python and in C++, also to train it there.
///
///   npu_train::export_torchscript(model, npu_train::example_batch(model.inputs), "model.pt");
///
/// As for ONNX, the forward runs at two sizes of each free size, in evaluation mode and without gradients, and its operators are written
/// down, so that the batch stays free. The file has the operators of libtorch themselves, so every operator can be exported.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/outputs.hpp"
#include "npu_train/export/onnx.hpp"
#include "npu_train/export/onnx_check.hpp"
#include "npu_train/nn/model.hpp"

namespace npu_train {

struct TorchScriptExportOptions {
  /// Names of the sizes that stay free in the file (InputSpec::shape); the others get the example's size. Empty: all but "height" and
  /// "width".
  std::vector<std::string> dynamic{};
  /// Entries of the file, as torch.jit.load(path, _extra_files={key: ''}) reads them.
  std::vector<std::pair<std::string, std::string>> metadata{};
};

/// A written module. Its forward takes the inputs in this order, and returns the tensor of the only output, or a tuple of all.
struct TorchScriptExport {
  uint64_t bytes = 0;
  std::vector<OnnxValue> inputs{}, outputs{};
  std::map<std::string, int64_t> operators{};  ///< number of operators by name ("aten::add.Tensor")
  /// Decisions of the forward that are fixed in the file although they depended on values.
  std::vector<std::string> warnings{};
};

/// Writes the model to `to`, complete or not at all. The module has the submodules, parameters and buffers of the model with their names
/// and dtypes. Its mode is fixed: that of evaluation. The model must be on the CPU; the module's mode is restored.
///
/// Error(Usage) names operator, layer and remedy: an operator that draws random numbers or that libtorch's scripts do not know, a
/// number that the host reads, a write to a constant, a size that depends on a free size in another way than as a multiple.
/// Error(Checkpoint) if the file cannot be written.
TorchScriptExport export_torchscript(const Model& model, const Batch& example, const std::filesystem::path& to,
                                     const TorchScriptExportOptions& options = {});

/// Compares the file, loaded by libtorch on the CPU, with the model on `inputs`. The file is code, and runs. Error(Data) if it cannot be
/// loaded or run.
FileComparison check_torchscript(const std::filesystem::path& file, const Model& model, const Batch& inputs,
                                 double tolerance = kOnnxTolerance);

}  // namespace npu_train
