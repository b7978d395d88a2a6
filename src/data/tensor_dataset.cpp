#include <ATen/ops/select.h>

#include "npu_train/core/error.hpp"
#include "npu_train/data/dataset.hpp"

#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>

namespace npu_train {

TensorDataset::TensorDataset(at::Tensor inputs, at::Tensor targets, int64_t num_classes)
    : inputs_(std::move(inputs)), targets_(std::move(targets)) {
  check(inputs_.defined() && targets_.defined() && inputs_.dim() >= 1 && targets_.dim() >= 1, ErrorKind::Usage, "TensorDataset",
        "inputs and targets must be tensors with samples in their first dimension");
  check(inputs_.size(0) == targets_.size(0), ErrorKind::Usage, "TensorDataset", inputs_.size(0), " inputs and ", targets_.size(0),
        " targets; the numbers must be equal");
  inputs_ = inputs_.contiguous();
  targets_ = targets_.contiguous();
  info_.name = "tensors";
  info_.shape = inputs_.sizes().slice(1).vec();
  info_.num_classes = num_classes;
  if (targets_.scalar_type() != at::kLong || targets_.dim() != 1 || targets_.numel() == 0) return;
  const auto least = targets_.min().item<int64_t>(), most = targets_.max().item<int64_t>();
  if (num_classes == 0 && least >= 0) info_.num_classes = most + 1;
  check(num_classes == 0 || (least >= 0 && most < num_classes), ErrorKind::Data, "TensorDataset", "target ",
        (least < 0 ? targets_.argmin() : targets_.argmax()).item<int64_t>(), " is ", least < 0 ? least : most, "; classes are 0 to ",
        num_classes - 1);
}

int64_t TensorDataset::size() const { return inputs_.size(0); }

int64_t TensorDataset::label(int64_t index) const {
  return targets_.dim() == 1 && targets_.scalar_type() == at::kLong ? targets_[index].item<int64_t>() : -1;
}

Sample TensorDataset::get(int64_t index) const {
  check(index >= 0 && index < size(), ErrorKind::Usage, "TensorDataset", "sample ", index, " of ", size());
  return {{{"input", inputs_.select(0, index)}, {"target", targets_.select(0, index)}}, index};
}

}  // namespace npu_train
