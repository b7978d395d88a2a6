/// Export to ONNX: a trained network as a file that other runtimes and compilers read (onnxruntime, Ascend's ATC).
///
///   model.module->eval();
///   npu_train::export_onnx(model, npu_train::example_batch(model.inputs), "model.onnx");
///
/// The forward runs at two batch sizes, in evaluation mode and without gradients, and its operators become ONNX nodes. A comparison of the
/// two runs shows which sizes depend on the batch, so that the batch stays free in the file. Control flow outside of tensor operators is
/// fixed: loops keep their number of iterations, and branches keep the path taken.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/nn/model.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

struct OnnxOptions {
  int64_t opset = 17;  ///< 15 to 20. ATC of CANN 8.0 accepts 11 to 15, CANN 8.5 to 18
  /// fp32 or fp16. With fp16, weights and arithmetic are fp16, except normalisation, softmax, exponentials, reductions and recurrent
  /// layers. Inputs and outputs of the graph keep their dtypes.
  at::ScalarType dtype = at::kFloat;
  /// Names of the sizes (InputSpec::shape) that stay free in the file; the others are fixed to the example's. Empty: all but "height" and
  /// "width".
  std::vector<std::string> dynamic{};
  /// If the weights have more bytes in total, they go into a second file next to the model: an ONNX file must be smaller than 2 GiB.
  uint64_t external_above = 2'000'000'000;
  /// Additional entries of metadata_props; the version of npu_train is always included.
  std::vector<std::pair<std::string, std::string>> metadata{};
};

/// An input or output of an exported graph.
struct OnnxValue {
  std::string name{};
  at::ScalarType dtype = at::kFloat;
  std::vector<Extent> shape{};
};

/// A written model.
struct OnnxExport {
  uint64_t bytes = 0;            ///< size of the model's file
  std::filesystem::path data{};  ///< the file with the weights; empty if they are in the model's file
  uint64_t data_bytes = 0;       ///< size of `data`
  std::vector<OnnxValue> inputs{}, outputs{};
  std::map<std::string, int64_t> operators{};  ///< number of nodes by ONNX operator
  std::map<std::string, int64_t> recorded{};   ///< number of occurrences of each operator of the forward, by name ("aten::add.Tensor")
  /// Decisions of the forward that depended on values and are now fixed in the file.
  std::vector<std::string> warnings{};
};

/// Writes the model to `to`, completely or not at all. `example` has the model's inputs (Model::inputs; if empty, every field of the batch
/// is an input with the free first dimension "batch"), with any number of rows. Inputs and outputs are named as in the batch and in
/// Outputs. The module's mode is restored.
///
/// Error(Usage) names operator, layer and remedy. Causes: an operator that has no form in this opset, draws random numbers or is in
/// training mode; a tensor that is read after its memory was changed through another view; a number that the host reads; a size that
/// depends on a free size, but not as a multiple; weights that are not fp32. Error(Checkpoint) if the file cannot be written.
OnnxExport export_onnx(const Model& model, const Batch& example, const std::filesystem::path& to, const OnnxOptions& options = {});

/// Exports a task; its inputs are the fields of the example that its forward reads.
OnnxExport export_onnx(Task& task, const Batch& example, const std::filesystem::path& to, const OnnxOptions& options = {});

// Checks of exported ONNX files: onnxruntime computes the file, and the outputs are compared with those of the model.

/// The deviation of a file's outputs from those of the model.
struct FileComparison {
  std::string by;         ///< program that computed the file: "onnxruntime 1.20.1", "libtorch"
  double difference = 0;  ///< largest difference of an output, relative to its largest absolute value
  double tolerance = 0;
  bool agrees() const { return difference <= tolerance; }
};

/// Tolerances for fp32 and fp16 files.
constexpr double kOnnxTolerance = 1e-5, kOnnxHalfTolerance = 2e-3;

/// Compares the file with the model on `inputs`. Use a batch size other than 2 and 3, which the export records. onnxruntime must be
/// installed in the Python that the variable NPU_TRAIN_ONNX_PYTHON names, by default `python3`. If it is not, Error(Device) begins with
/// "not checked: ". Error(Data) if it cannot run the file.
FileComparison check_onnx(const std::filesystem::path& file, const Model& model, const Batch& inputs, double tolerance);

}  // namespace npu_train
