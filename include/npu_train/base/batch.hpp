/// The output of a loader and input of a task: a named tree of tensors with the number of samples, their weight and their ids.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace npu_train {

/// A tree by dotted names: "input", "target", "boxes.0". Classification uses "input" [N, C, H, W] and "target" [N] (int64), or
/// [N, classes] for soft labels; a padded batch carries "mask" [N] (1 = a real sample).
class Batch {
 public:
  using Field = std::pair<std::string, at::Tensor>;

  Batch() = default;
  /// The usual case; size is the first dimension of `input`, weight the same.
  Batch(at::Tensor input, at::Tensor target);

  bool has(const std::string& name) const;
  /// If there is no field `name`, Error(Usage) lists the existing ones.
  const at::Tensor& at(const std::string& name) const;
  /// Adds or replaces.
  void set(const std::string& name, at::Tensor value);
  void erase(const std::string& name);
  const std::vector<Field>& fields() const { return fields_; }

  const at::Tensor& input() const { return at("input"); }
  const at::Tensor& target() const { return at("target"); }

  /// The same batch with every tensor changed by `fn` (moved to a device, pinned, cast).
  Batch map(const std::function<at::Tensor(const at::Tensor&)>& fn) const;

  /// Rows of the batch, including padding: the first dimension of "input", or of the first field that has one; 0 if there is none.
  int64_t rows() const;
  /// `count` rows from `first` on, sharing the memory: of every field whose first dimension counts the rows; other fields are unchanged.
  /// Size and weight are those of the real samples among them (the first `size` rows are), as are the ids. Pending changes are applied
  /// first.
  Batch narrow(int64_t first, int64_t count) const;

  /// The batch without pending changes, computed on the device of its tensors.
  Batch finished() const;

  /// Bytes of all tensors.
  int64_t nbytes() const;

  int64_t size = 0;          ///< real samples (padding not counted)
  double weight = 0;         ///< weight of the batch's mean loss in its window; the number of samples unless a task sets another
  std::vector<int64_t> ids;  ///< the data set's index of each sample; may be empty
  int64_t epoch = 0;         ///< epoch in which the samples were drawn
  int64_t index = 0;         ///< number of the micro-batch in its epoch, over all ranks
  /// The pending changes, in order, applied where the batch is used: images that are transformed on the device (data/device_augment.hpp).
  /// Until then the fields are not yet those that a task accepts. to_device() applies them after the copy.
  std::vector<std::function<Batch(Batch)>> pending;

 private:
  std::vector<Field> fields_;
};

}  // namespace npu_train
