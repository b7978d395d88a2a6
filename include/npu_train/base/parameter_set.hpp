/// The parameters of a model, identified by name and never by address.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace npu_train {

/// One trainable tensor, or a slice of one if ranks shard the update. `group` selects the optimizer's options (by default 0 = weight decay,
/// 1 = no weight decay).
struct Parameter {
  std::string name;
  at::Tensor value;
  int group = 0;
  at::Tensor sliced_from{};  ///< parameter of which `value` is a slice (1-D, possibly empty); undefined: `value` is the complete parameter
  int64_t begin = 0;         ///< offset of the slice's first element in the storage order of the parameter
  at::Tensor computed{};     ///< set for an fp32 master: the low-precision tensor that the model computes with

  bool is_slice() const { return sliced_from.defined(); }
  /// Returns the complete parameter.
  const at::Tensor& whole() const { return is_slice() ? sliced_from : value; }
  /// Returns whether the complete parameters have equal shapes, and both objects are complete parameters or slices of the same range.
  bool is_same_part(const Parameter& other) const;
  /// Returns the part of `of_whole` (a tensor of the parameter's shape, any dtype and strides) that corresponds to `value`.
  at::Tensor part_of(const at::Tensor& of_whole) const;
  /// Returns the slice [begin, begin + numel) in storage order: an autograd leaf that shares memory with the parameter. Error(Usage) unless
  /// this is a complete parameter, dense in memory, and contains the range.
  Parameter slice(int64_t begin, int64_t numel) const;
};

/// Returns the path of a parameter's module: "layer1.0.conv1" for "layer1.0.conv1.weight", "" for a parameter of the model itself.
std::string layer_of(const std::string& parameter);

/// An ordered set of parameters with unique names. Copies share the tensors. A tensor that is added again under another name is a tied
/// parameter: it keeps its first name, and the other name becomes an alias.
class ParameterSet {
 public:
  ParameterSet() = default;
  explicit ParameterSet(std::vector<Parameter> parameters);

  /// Adds a parameter. Error(Usage) for an empty or repeated name or an undefined tensor.
  void add(Parameter parameter);
  /// Copies the aliases of `other` whose parameters are also in this set.
  void add_aliases_of(const ParameterSet& other);

  size_t size() const { return parameters_.size(); }
  bool empty() const { return parameters_.empty(); }
  const Parameter& operator[](size_t i) const { return parameters_[i]; }
  Parameter& operator[](size_t i) { return parameters_[i]; }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }

  /// Returns the parameter, or nullptr; aliases are not searched.
  const Parameter* find(const std::string& name) const;
  /// Returns the values, in order.
  std::vector<at::Tensor> values() const;
  /// Returns the existing gradients, in order.
  std::vector<at::Tensor> grads() const;
  /// Total number of elements; a slice counts as its complete parameter.
  int64_t numel() const;
  /// Frees the gradients, or fills them with zeros if `set_to_none` is false.
  void zero_grad(bool set_to_none = true) const;
  /// Returns the tied parameters' other names, as pairs (alias, name in the set).
  const std::vector<std::pair<std::string, std::string>>& aliases() const { return aliases_; }
  /// Returns the parameters for which `keep` returns true, with their aliases.
  ParameterSet filter(const std::function<bool(const Parameter&)>& keep) const;

 private:
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, size_t> index_;
  std::unordered_map<const void*, size_t> tensors_;  // index in parameters_, by the identity of the tensor
  std::vector<std::pair<std::string, std::string>> aliases_;
};

/// Bounds within which an optimizer keeps a parameter.
struct ParameterLimit {
  std::string name;  ///< name of the parameter
  double least = 0;
  double most = 0;

  /// Clamps each element to [least, most]; NaN stays NaN.
  at::Tensor within(const at::Tensor& value) const { return value.clamp(least, most); }
};

}  // namespace npu_train
