/// What a model returns: tensors by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// Named tensors in an order; most models have one, "output".
class Outputs {
 public:
  using Field = std::pair<std::string, at::Tensor>;

  Outputs() = default;
  Outputs(at::Tensor only);  // NOLINT: a model with one output returns it
  explicit Outputs(std::vector<Field> fields) : fields_(std::move(fields)) {}

  bool has(const std::string& name) const;
  /// Error(Usage) lists the names if `name` is not one of them.
  const at::Tensor& at(const std::string& name) const;
  /// The first one, which losses and metrics of one output use; undefined if there is none.
  const at::Tensor& first() const;
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

}  // namespace npu_train
