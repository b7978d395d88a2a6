/// Token ids as a vector, for comparisons.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace npu_train::testing {

using Ids = std::vector<int64_t>;

inline Ids ids_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

}  // namespace npu_train::testing
