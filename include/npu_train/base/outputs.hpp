/// The named tensors that a model returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// Named tensors in a fixed order; most models have one, "output".
class Outputs {
 public:
  using Field = std::pair<std::string, at::Tensor>;

  Outputs() = default;
  Outputs(at::Tensor only);  // NOLINT: a model with one output returns it
  explicit Outputs(std::vector<Field> fields) : fields_(std::move(fields)) {}

  bool has(const std::string& name) const;
  /// Returns the output. Error(Usage) with a list of the names if `name` is not one of them.
  const at::Tensor& at(const std::string& name) const;
  /// Returns the first tensor: losses and metrics for a single output use it. Undefined if there are no outputs.
  const at::Tensor& first() const;
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

}  // namespace npu_train
