// Converts a recorded forward to a TorchScript graph: the same operators, with sizes computed from the inputs.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "export/records.hpp"

namespace npu_train::script {

class GraphBuilder {
 public:
  /// `self` is the type of the module whose method the graph implements.
  GraphBuilder(const onnx::Records& records, const c10::TypePtr& self);

  /// Error(Usage) as in export_torchscript.
  std::shared_ptr<torch::jit::Graph> build();
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void add_inputs(const c10::TypePtr& self);
  void add_operator(size_t op);
  bool host_fills(size_t op) const;
  void must_be_repeatable(size_t op) const;
  torch::jit::Value* argument(size_t op, size_t index, size_t& read);
  torch::jit::Value* integer(const onnx::Ints& by_record);
  torch::jit::Value* value_of(size_t value);
  torch::jit::Value* attribute(const std::string& path);
  void bind_outputs(size_t op, torch::jit::Node& node);
  [[noreturn]] void refuse(const std::string& why, const std::string& hint) const { records_.refuse(op_, why, hint); }

  const onnx::Records& records_;
  std::shared_ptr<torch::jit::Graph> graph_ = std::make_shared<torch::jit::Graph>();
  std::vector<torch::jit::Value*> values_;                          // graph value of each recorded value
  std::vector<bool> constant_;                                      // for each recorded value, whether it is independent of the input
  std::vector<torch::jit::Value*> free_;                            // graph value of each free size
  std::unordered_map<std::string, torch::jit::Value*> attributes_;  // graph value of each attribute, by path
  std::unordered_map<const void*, std::vector<size_t>> writes_;     // for each storage, the operators that write to it
  std::unordered_set<const void*> fixed_storage_;                   // storages of constants without a name
  std::vector<std::string> warnings_;
  size_t op_ = 0;
};

}  // namespace npu_train::script
