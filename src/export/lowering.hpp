// Lowers a recorded forward to an ONNX model; the rows of the table (rows.hpp) lower single operators.
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

  /// Error(Usage) as in export_onnx.
  OnnxModel run();
  const std::vector<std::string>& warnings() const { return warnings_; }

  // ---- used by the rows

  int64_t opset() const { return model_.opset; }
  const Records& records() const { return records_; }
  /// Adds a node with one output; returns the output's name.
  std::string node(const std::string& op, Names inputs, Attributes attributes = {});
  Names nodes(const std::string& op, Names inputs, size_t outputs, Attributes attributes = {});
  /// Return the names of constants. Equal constants are stored only once.
  std::string ints(const Ints& values);
  std::string number(const c10::Scalar& value, at::ScalarType type);
  std::string constant(const std::string& name, const at::Tensor& value);
  /// Returns the name of a 1-D int64 tensor with these sizes.
  std::string shape(const Sizes& sizes);
  std::string reshape(const std::string& x, const Sizes& sizes);
  std::string cast(const std::string& x, at::ScalarType from, at::ScalarType to);
  /// While an object of this class exists, new nodes have Node::keeps_fp32.
  class Fp32Nodes;
  /// Returns the name of a value; for a constant, the name of its initializer.
  std::string name_of(size_t value);
  /// Returns whether the value is the same for every input.
  bool is_constant(size_t value) const { return constant_[value]; }
  void set_name(size_t value, std::string name) { names_[value] = std::move(name); }
  /// Throws Error(Usage) about the operator that is being lowered.
  [[noreturn]] void refuse(const std::string& why, const std::string& hint) const { records_.refuse(op_, why, hint); }

 private:
  void add_inputs();
  void add_outputs();
  void lower(size_t op);
  bool folds(size_t op) const;
  void must_not_be_stale(size_t value, size_t before) const;
  void must_have_equal_options(size_t op) const;
  std::string constant_of(size_t value);
  std::string unique(const std::string& wish);
  std::string free_size(size_t index);
  std::string once(const std::string& key, const at::Tensor& value);

  const Records& records_;
  OnnxModel model_;
  std::vector<std::string> names_;                               // for each value, its name; "" if it has no name yet
  std::vector<bool> constant_;                                   // for each value, whether it is constant
  std::unordered_map<const void*, std::vector<size_t>> writes_;  // for each storage, the operators that change it
  std::unordered_set<std::string> used_;                         // names in use
  std::unordered_map<std::string, std::string> once_;            // names of initializers by their content
  std::vector<std::string> free_names_;                          // for each free size, the name of a tensor [1] with its value
  std::vector<std::string> warnings_;
  size_t op_ = 0;  // index of the operator being lowered
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

/// An operator of the forward. It is passed to the function `lower` of the operator's row.
class Call {
 public:
  Call(Lowering& to, size_t op);

  Lowering& to;
  const detail::GraphOp& op() const { return to.records().graph().ops()[index_]; }
  /// True if argument `i` was given and is not an undefined tensor.
  bool has(size_t i) const;
  const at::Tensor& tensor(size_t i) const;
  int64_t rank(size_t i = 0) const { return tensor(i).dim(); }
  at::ScalarType type(size_t i = 0) const { return tensor(i).scalar_type(); }
  /// Returns the name of tensor argument `i`; "" if it is absent.
  std::string input(size_t i);
  /// Returns the names of a list of tensors.
  Names inputs(size_t i);
  /// Returns the name of argument `i` after conversion to `type`; a number becomes a constant.
  std::string operand(size_t i, at::ScalarType type);
  int64_t integer(size_t i) const { return op().args[i].toInt(); }
  double number(size_t i) const;
  bool flag(size_t i) const { return op().args[i].toBool(); }
  std::string text(size_t i) const { return op().args[i].toStringRef(); }
  /// Returns a list of integers, or a single integer as a list; empty for None.
  Ints ints(size_t i) const;
  /// Returns a list of integers; a single one is repeated `count` times, once for each dimension.
  Ints ints(size_t i, size_t count) const;
  /// Returns argument `i`; a negative value counts from the end.
  int64_t axis(size_t i, int64_t rank) const;
  /// Return argument `i`, or element `k` of it, as an integer that may depend on free sizes.
  Size size(size_t i) const;
  Size size(size_t i, size_t k) const;
  Sizes sizes_of(size_t i) const;
  /// Returns the tensor of a result.
  const at::Tensor& result(size_t k = 0) const;
  Sizes result_sizes(size_t k = 0) const;
  void give(std::string name, size_t k = 0) { to.set_name(op().gives[k], std::move(name)); }

 private:
  Size must_be_multiple(const Ints& by_record) const;
  std::vector<size_t> values(size_t i) const;
  size_t index_;
};

}  // namespace npu_train::onnx
