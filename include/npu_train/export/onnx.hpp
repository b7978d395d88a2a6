/// Export to ONNX: a trained network as a file that other runtimes and compilers read (onnxruntime, Ascend's ATC).
///
///   model.module->eval();
///   npu_train::export_onnx(model, npu_train::example_batch(model.inputs), "model.onnx");
///
/// The forward runs at two sizes of the batch, in evaluation mode and without gradients, and its operators become nodes of ONNX. By the
/// comparison of the two runs, the batch stays free in the file. What the forward decides by other means than operators on tensors is not
/// in the file: a loop has the number of rounds that it had, a branch is the one that was taken.
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
  /// fp32, or fp16: weights and arithmetic are fp16, except normalisation, softmax, exponentials, reductions and recurrent layers, which
  /// stay fp32. Inputs and outputs of the graph keep their dtypes.
  at::ScalarType dtype = at::kFloat;
  /// Names of the sizes that stay free in the file (InputSpec::shape); the others get the example's size. Empty: all but "height" and
  /// "width".
  std::vector<std::string> dynamic{};
  /// Weights of more bytes are written to a second file next to the model. An ONNX file cannot have 2 GiB.
  uint64_t external_above = 2'000'000'000;
  /// Entries of metadata_props, in addition to the version of npu_train.
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
  uint64_t bytes = 0;            ///< of the model's file
  std::filesystem::path data{};  ///< the file with the weights; empty if they are in the model's file
  uint64_t data_bytes = 0;       ///< of that file
  std::vector<OnnxValue> inputs{}, outputs{};
  std::map<std::string, int64_t> operators{};  ///< number of nodes by ONNX operator
  std::map<std::string, int64_t> recorded{};   ///< number of operators of the forward by name ("aten::add.Tensor")
  /// Decisions of the forward that are fixed in the file although they depended on values.
  std::vector<std::string> warnings{};
};

/// Writes the model to `to`, complete or not at all. `example` has the model's inputs (Model::inputs; without them every field of the
/// batch is one, whose first dimension is the free size "batch"); the number of its rows does not matter. Names of inputs and outputs are
/// those of the batch and of Outputs. The module's mode is restored.
///
/// Error(Usage) names operator, layer and remedy: an operator that has no form in this opset, one that draws random numbers or is in
/// training mode, a view that is read after a write to its memory (or the memory after a write to a view), a number that the host reads, a
/// size that depends on a free size in another way than as a multiple, weights that are not fp32. Error(Checkpoint) if the file cannot be
/// written.
OnnxExport export_onnx(const Model& model, const Batch& example, const std::filesystem::path& to, const OnnxOptions& options = {});

/// The same for a task, whose inputs are all fields of the example that its forward reads.
OnnxExport export_onnx(Task& task, const Batch& example, const std::filesystem::path& to, const OnnxOptions& options = {});

}  // namespace npu_train
