/// The parameters of a model as all other code uses them: by name, never by address.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace npu_train {

/// One trainable tensor, or, where ranks divide what they update, a slice of one. `group` selects the optimizer's options (0 = decay,
/// 1 = no decay by default).
struct Parameter {
  std::string name;
  at::Tensor value;
  int group = 0;
  at::Tensor sliced_from{};  ///< the parameter of which `value` is a slice, 1-D and possibly empty; undefined: `value` is all of it
  int64_t begin = 0;         ///< of the slice: its first element, in the order in which the parameter is in memory
  at::Tensor computed{};     ///< of an fp32 master: the tensor in low precision that the model computes with; undefined: `value` itself

  bool is_slice() const { return sliced_from.defined(); }
  /// All of the parameter.
  const at::Tensor& whole() const { return is_slice() ? sliced_from : value; }
  /// Whether both are the same slice of parameters of one size, or all of them.
  bool is_same_part(const Parameter& other) const;
  /// What `of_whole`, of the sizes of the parameter and of any dtype and layout, has in the place of `value`: itself, or a slice of it.
  at::Tensor part_of(const at::Tensor& of_whole) const;
  /// The slice [begin, begin + numel) of it in the order of memory: a leaf that shares its memory. The parameter must be dense in memory.
  Parameter slice(int64_t begin, int64_t numel) const;
};

/// Path of the module that a parameter belongs to: "layer1.0.conv1" of "layer1.0.conv1.weight"; "" for a parameter of the model itself.
std::string layer_of(const std::string& parameter);

/// An ordered set of parameters with unique names. Copies share the tensors. If a tensor is added again under another name, it is a tied
/// parameter: it stays one parameter, under its first name, and the other name becomes an alias.
class ParameterSet {
 public:
  ParameterSet() = default;
  explicit ParameterSet(std::vector<Parameter> parameters);

  /// Error(Usage) for an empty or repeated name or an undefined tensor.
  void add(Parameter parameter);
  /// The aliases of `other`, for the parameters that this set has under the same names.
  void add_aliases_of(const ParameterSet& other);

  size_t size() const { return parameters_.size(); }
  bool empty() const { return parameters_.empty(); }
  const Parameter& operator[](size_t i) const { return parameters_[i]; }
  Parameter& operator[](size_t i) { return parameters_[i]; }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }

  /// nullptr if there is none with that name; an alias does not count.
  const Parameter* find(const std::string& name) const;
  /// The values, in order.
  std::vector<at::Tensor> values() const;
  /// The existing gradients, in order (parameters without one are omitted).
  std::vector<at::Tensor> grads() const;
  /// Total number of elements, of parameters and not of the slices.
  int64_t numel() const;
  /// Releases the gradients and their memory, or fills them with zeros.
  void zero_grad(bool set_to_none = true) const;
  /// The aliases of tied parameters, with their names in the set.
  const std::vector<std::pair<std::string, std::string>>& aliases() const { return aliases_; }
  /// The parameters for which `keep` returns true, with their aliases.
  ParameterSet filter(const std::function<bool(const Parameter&)>& keep) const;

 private:
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, size_t> index_;
  std::unordered_map<const void*, size_t> tensors_;  // by identity
  std::vector<std::pair<std::string, std::string>> aliases_;
};

}  // namespace npu_train
