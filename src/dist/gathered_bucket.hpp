// All-gather of the slices of one bucket's parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "dist/flat_layout.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {

class GatheredBucket {
 public:
  // Sends this rank's `slices`, one for each parameter of the set and on any device, rounded to `dtype`. `between_devices`: between the
  // devices of the parameters, without a copy in host memory.
  GatheredBucket(const FlatBucket& layout, const std::vector<at::Tensor>& slices, at::ScalarType dtype, ProcessGroup& group,
                 bool between_devices);

  // Blocks, and copies the result to each defined tensor of `whole` in this bucket. `parameters` have the complete sizes and strides.
  void finish(const ParameterSet& parameters, const std::vector<at::Tensor>& whole);

 private:
  const FlatBucket& layout_;
  at::Tensor own_, all_;
  std::unique_ptr<Collective> gather_;
};

}  // namespace npu_train::detail
