// The arguments of aclnn operators: what the handles of AscendCL hold.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "acl.hpp"

struct aclTensor {
  std::vector<int64_t> sizes, strides;
  int64_t offset;  // in elements
  at::ScalarType dtype;
  void* data;  // device memory
};
struct aclScalar {
  at::Scalar value;
  at::ScalarType dtype;
};
struct aclIntArray {
  std::vector<int64_t> values;
};
struct aclFloatArray {
  std::vector<float> values;
};
struct aclBoolArray {
  std::vector<bool> values;
};
struct aclTensorList {
  std::vector<aclTensor> tensors;
};
struct aclScalarList {
  std::vector<at::Scalar> values;
};

namespace sim_cann {

/// AscendCL's number of a dtype. Throws std::runtime_error for one that libtorch does not have.
at::ScalarType dtype_of(int number);
/// "float32[2, 3]", with the strides unless it is contiguous.
std::string text_of(const aclTensor& tensor);
/// The tensor on the memory of the device, as operators use it.
at::Tensor open_tensor(const aclTensor& tensor);

}  // namespace sim_cann
