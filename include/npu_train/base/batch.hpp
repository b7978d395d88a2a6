/// Batch: the output of a loader and the input of a task. It has named tensors, the number of samples, their weight and their ids. Outputs:
/// the named tensors that a model returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// Tensors by dotted name: "input", "target", "boxes.0". Classification uses "input" [N, C, H, W] and "target" [N] (int64); soft labels are
/// a "target" [N, classes]. A padded batch has "mask" [N] (1 = a real sample).
class Batch {
 public:
  using Field = std::pair<std::string, at::Tensor>;

  Batch() = default;
  /// Constructs the batch of a supervised task. `size` and `weight` are set to the number of rows of `input`.
  Batch(at::Tensor input, at::Tensor target);

  bool has(const std::string& name) const;
  /// Returns the field. Error(Usage) with a list of the fields if `name` is not one of them.
  const at::Tensor& at(const std::string& name) const;
  /// Adds or replaces a field.
  void set(const std::string& name, at::Tensor value);
  void erase(const std::string& name);
  const std::vector<Field>& fields() const { return fields_; }

  const at::Tensor& input() const { return at("input"); }
  const at::Tensor& target() const { return at("target"); }

  /// Returns a copy with every tensor replaced by `fn`(tensor): moved to a device, pinned, cast.
  Batch map(const std::function<at::Tensor(const at::Tensor&)>& fn) const;

  /// Number of rows, including padding: the size of the first dimension of "input", or of the first field that has one; 0 if no field has
  /// one.
  int64_t rows() const;
  /// Returns the rows [first, first + count) without a copy. Fields whose first dimension does not have the size rows() stay complete. The
  /// `size`, `weight` and `ids` of the result count only real samples (the first `size` rows of this batch). Pending changes are applied
  /// first.
  Batch narrow(int64_t first, int64_t count) const;

  /// Applies the pending changes, on the device of the tensors, and returns the result.
  Batch finished() const;

  /// Total size of all tensors in bytes.
  int64_t nbytes() const;

  int64_t size = 0;          ///< real samples (padding not counted)
  double weight = 0;         ///< weight of the batch's mean loss in its window; the number of samples unless a task sets another value
  std::vector<int64_t> ids;  ///< index of each sample in the data set; may be empty
  int64_t epoch = 0;         ///< epoch in which the samples were drawn
  int64_t index = 0;         ///< index of the micro-batch in its epoch, over all ranks
  /// Changes that are applied in this order when the batch is used, such as image transforms on the device (data/device_augment.hpp). Until
  /// then a task cannot use the fields. to_device() applies them after the copy.
  std::vector<std::function<Batch(Batch)>> pending;

 private:
  std::vector<Field> fields_;
};

/// Named tensors in a fixed order; most models have a single one, "output".
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
