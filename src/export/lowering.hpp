// From a recorded forward to an ONNX model: the frame in which the rows of the table (rows.hpp) work.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "export/onnx_model.hpp"
#include "export/records.hpp"

namespace npu_train::onnx {

class Lowering {
 public:
  Lowering(const Records& records, int64_t opset);

  /// Error(Usage) as export_onnx.
  OnnxModel run();
  const std::vector<std::string>& warnings() const { return warnings_; }

  // ---- for the rows

  int64_t opset() const { return model_.opset; }
  const Records& records() const { return records_; }
  /// Adds a node with one output; returns the output's name.
  std::string node(const std::string& op, Names inputs, Attributes attributes = {});
  Names nodes(const std::string& op, Names inputs, size_t outputs, Attributes attributes = {});
  /// Constants, each once in the file.
  std::string ints(const Ints& values);
  std::string number(const c10::Scalar& value, at::ScalarType type);
  std::string constant(const std::string& name, const at::Tensor& value);
  /// A 1-D int64 tensor with the sizes.
  std::string shape(const Sizes& sizes);
  std::string reshape(const std::string& x, const Sizes& sizes);
  std::string cast(const std::string& x, at::ScalarType from, at::ScalarType to);
  /// While it lives, nodes are marked as Node::keeps_fp32.
  class Fp32Nodes;
  /// The name of a value; of a constant, its initializer.
  std::string name_of(size_t value);
  /// Whether the value is the same for every input.
  bool is_constant(size_t value) const { return constant_[value]; }
  void set_name(size_t value, std::string name) { names_[value] = std::move(name); }
  /// Error(Usage) about the operator that is being lowered.
  [[noreturn]] void refuse(const std::string& why, const std::string& hint) const;

 private:
  void add_inputs();
  void add_outputs();
  void lower(size_t op);
  bool folds(size_t op) const;
  bool host_reads(size_t op);
  void must_not_be_stale(size_t value, size_t before) const;
  void must_have_equal_options(size_t op) const;
  std::string constant_of(size_t value);
  std::string unique(const std::string& wish);
  std::string free_size(size_t index);
  std::string once(const std::string& key, const at::Tensor& value);

  const Records& records_;
  OnnxModel model_;
  std::vector<std::string> names_;                               // by value; "" without one
  std::vector<bool> constant_;                                   // by value
  std::unordered_map<const void*, std::vector<size_t>> writes_;  // by storage: operators that change it
  std::unordered_set<std::string> used_;                         // names of the graph
  std::unordered_map<std::string, std::string> once_;            // initializers by content
  std::vector<std::string> free_names_;                          // by free size: a tensor [1] with it
  std::vector<std::string> warnings_;
  size_t op_ = 0;  // that is being lowered
  bool fp32_nodes_ = false;
};

class Lowering::Fp32Nodes {
 public:
  explicit Fp32Nodes(Lowering& to) : to_(to) { to_.fp32_nodes_ = true; }
  ~Fp32Nodes() { to_.fp32_nodes_ = false; }
  Fp32Nodes(const Fp32Nodes&) = delete;
  Fp32Nodes& operator=(const Fp32Nodes&) = delete;

 private:
  Lowering& to_;
};

/// One operator of the forward, as a row sees it.
class Call {
 public:
  Call(Lowering& to, size_t op);

  Lowering& to;
  const detail::GraphOp& op() const { return to.records().graph().ops()[index_]; }
  /// Whether argument `i` was given (and is no undefined tensor).
  bool has(size_t i) const;
  const at::Tensor& tensor(size_t i) const;
  int64_t rank(size_t i = 0) const { return tensor(i).dim(); }
  at::ScalarType type(size_t i = 0) const { return tensor(i).scalar_type(); }
  /// The name of tensor argument `i`; of an argument that is absent, "".
  std::string input(size_t i);
  /// Of a list of tensors.
  Names inputs(size_t i);
  /// The same, and converted to `type`; a number becomes a constant.
  std::string operand(size_t i, at::ScalarType type);
  int64_t integer(size_t i) const { return op().args[i].toInt(); }
  double number(size_t i) const;
  bool flag(size_t i) const { return op().args[i].toBool(); }
  std::string text(size_t i) const { return op().args[i].toStringRef(); }
  /// A list of integers, or one; empty for None.
  Ints ints(size_t i) const;
  /// The same; one number is repeated for `count` dimensions.
  Ints ints(size_t i, size_t count) const;
  /// Argument `i`, counted from the end if it is negative.
  int64_t axis(size_t i, int64_t rank) const;
  /// An integer that may depend on free sizes; element `k` of a list of integers.
  Size size(size_t i) const;
  Size size(size_t i, size_t k) const;
  Sizes sizes_of(size_t i) const;
  /// Of a result.
  const at::Tensor& result(size_t k = 0) const;
  Sizes result_sizes(size_t k = 0) const;
  void give(std::string name, size_t k = 0) { to.set_name(op().gives[k], std::move(name)); }

 private:
  Size must_be_multiple(const Ints& by_record) const;
  std::vector<size_t> values(size_t i) const;
  size_t index_;
};

}  // namespace npu_train::onnx
