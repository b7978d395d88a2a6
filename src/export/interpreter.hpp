// Runs ONNX models with libtorch's operators, to check exported files. Its table from ONNX to ATen is independent of the export's, and
// covers only the operators that the export writes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "export/onnx_model.hpp"
#include "npu_train/base/outputs.hpp"

namespace npu_train::onnx {

/// Returns the outputs of the graph. fp16 operators are computed in fp32 and rounded once. Error(Data) for an operator outside the table,
/// Error(Usage) for inputs that do not match.
Outputs run_model(const OnnxModel& model, const std::map<std::string, at::Tensor>& inputs);

/// A node with the values of its inputs.
class NodeRun {
 public:
  NodeRun(const Node& node, std::vector<at::Tensor> inputs, int64_t opset) : opset(opset), node_(node), inputs_(std::move(inputs)) {}

  const int64_t opset;
  const Node& node() const { return node_; }
  size_t outputs() const { return node_.outputs.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i].defined(); }
  /// Returns input `i`; undefined if it was omitted.
  at::Tensor x(size_t i = 0) const { return has(i) ? inputs_[i] : at::Tensor(); }
  std::optional<at::Tensor> optional(size_t i) const { return has(i) ? std::optional(inputs_[i]) : std::nullopt; }
  const std::vector<at::Tensor>& all() const { return inputs_; }
  /// Returns the elements of an integer input.
  Ints elements(size_t i) const;
  int64_t element(size_t i) const { return elements(i).at(0); }

  const Attribute* find(const std::string& name) const;
  int64_t integer(const std::string& name, int64_t otherwise) const;
  double number(const std::string& name, double otherwise) const;
  std::string text(const std::string& name, const std::string& otherwise) const;
  Ints ints(const std::string& name, const Ints& otherwise = {}) const;
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const Node& node_;
  std::vector<at::Tensor> inputs_;
};

using Results = std::vector<at::Tensor>;
using NodeFunction = Results (*)(const NodeRun&);
using NodeTable = std::map<std::string, NodeFunction>;
// The parts of the table.
const NodeTable& elementwise_nodes();
const NodeTable& layer_nodes();
const NodeTable& shape_nodes();

}  // namespace npu_train::onnx
