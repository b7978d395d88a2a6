/// State from which a component continues exactly: named tensors and named plain values. Also content digests of tensors and states, to
/// prove that two states are equal.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "npu_train/base/parameter_set.hpp"

namespace npu_train {

using StateValue = std::variant<int64_t, double, std::string>;

/// State of one part of a run (optimizer, scaler, loader ...). The tensors may be on any device; checkpoints copy them to the host.
struct State {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, StateValue> values;

  /// Returns the value of `key`. Error(Checkpoint) with `part` and `key` if it is missing or has another type.
  int64_t integer(const std::string& key, const std::string& part) const;
  double number(const std::string& key, const std::string& part) const;
  const std::string& text(const std::string& key, const std::string& part) const;
  const at::Tensor& tensor(const std::string& key, const std::string& part) const;

  bool empty() const { return tensors.empty() && values.empty(); }
};

class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual State state() const = 0;
  /// Restores the state. Error(Checkpoint), without a change, if this part cannot continue from it.
  virtual void load_state(const State& state) = 0;
};

// Content digests of tensors: equal digests mean bit-identical values.

/// Returns the digest of dtype, shape and elements in logical order (strides do not matter). Device tensors are copied to the host.
uint64_t digest(const at::Tensor& tensor);

/// Returns the digest of names and values, in order.
uint64_t digest(const ParameterSet& parameters);
uint64_t digest(const State& state);

}  // namespace npu_train
