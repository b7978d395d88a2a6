// Slices of one bucket's parameters on their way to all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "dist/flat_layout.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

class GatheredBucket {
 public:
  // Sends the `slices` of this rank, one for each parameter of the set, on any device, rounded to `dtype`. `between_devices`: from the
  // device of the parameters to those of other ranks, without a copy in host memory.
  GatheredBucket(const FlatBucket& layout, const std::vector<at::Tensor>& slices, at::ScalarType dtype, ProcessGroup& group,
                 bool between_devices);

  // Waits, and copies into each of the bucket's `whole` that is defined. `parameters` have the sizes and strides that the slices are of.
  void finish(const ParameterSet& parameters, const std::vector<at::Tensor>& whole);

 private:
  const FlatBucket& layout_;
  at::Tensor own_, all_;
  std::unique_ptr<Collective> gather_;
};

}  // namespace npu_train::detail
