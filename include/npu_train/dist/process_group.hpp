/// What ranks say to each other. One process alone is a group too, for which everything is the identity.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace npu_train {

/// Collective operations: every rank calls the same ones in the same order. Tensors keep their device and dtype and are changed in place.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  /// `tensor` becomes the sum (the largest, elementwise) over all ranks.
  virtual void all_reduce_sum(at::Tensor& tensor) = 0;
  virtual void all_reduce_max(at::Tensor& tensor) = 0;
  /// The sum of a number of the host over all ranks.
  virtual double all_reduce_sum(double value) = 0;
  /// `tensor` becomes that of rank `root`.
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  /// Returns when every rank has called it.
  virtual void barrier() = 0;

  /// The rank that writes files and speaks.
  bool is_main() const { return rank() == 0; }
};

/// The group of this process alone.
std::shared_ptr<ProcessGroup> single_process();

}  // namespace npu_train
