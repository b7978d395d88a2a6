/// The state that a component needs to continue without a difference: named tensors and named plain values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace npu_train {

using StateValue = std::variant<int64_t, double, std::string>;

/// State of one part of a run (optimizer, scaler, loader ...). Tensors may live on any device; a checkpoint stores them from the host.
struct State {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, StateValue> values;

  /// Typed reads. Error(Checkpoint) names `part` and the key if it is missing or has another type.
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
  /// Error(Checkpoint) if this part cannot continue from `state`; the part is then unchanged.
  virtual void load_state(const State& state) = 0;
};

}  // namespace npu_train
