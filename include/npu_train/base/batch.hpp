/// What a loader gives and a task takes: a named tree of tensors with the number of samples, their weight and their ids.
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
  /// Error(Usage) names what there is when `name` is not.
  const at::Tensor& at(const std::string& name) const;
  /// Adds or replaces.
  void set(const std::string& name, at::Tensor value);
  void erase(const std::string& name);
  const std::vector<Field>& fields() const { return fields_; }

  const at::Tensor& input() const { return at("input"); }
  const at::Tensor& target() const { return at("target"); }

  /// The same batch with every tensor changed by `fn` (moved to a device, pinned, cast).
  Batch map(const std::function<at::Tensor(const at::Tensor&)>& fn) const;

  /// Rows of the batch, padding counted: the first dimension of "input", or of the first field that has one; 0 without any.
  int64_t rows() const;
  /// `count` rows from `first` on, sharing the memory: of every field whose first dimension counts the rows; others stay whole. Size and
  /// weight are those of the real samples among them (the first `size` rows are), and so are the ids. What is pending is done first.
  Batch narrow(int64_t first, int64_t count) const;

  /// The batch with nothing pending, made where its tensors lie.
  Batch finished() const;

  /// Bytes of all tensors.
  int64_t nbytes() const;

  int64_t size = 0;   ///< real samples (padding not counted)
  double weight = 0;  ///< what the mean loss of this batch counts for in its window; the number of samples unless a task says otherwise
  std::vector<int64_t> ids;  ///< the data set's index of each sample; may be empty
  int64_t epoch = 0;         ///< epoch that the samples were drawn in
  int64_t index = 0;         ///< position of the batch in its epoch
  /// What is left to do, in order, where the batch is used: pictures that are changed on the device (data/device_augment.hpp). Until then
  /// the fields are not those that a task takes. to_device() does it after the copy.
  std::vector<std::function<Batch(Batch)>> pending;

 private:
  std::vector<Field> fields_;
};

}  // namespace npu_train
