// The arguments of aclnn operators, which are the objects behind the handles of AscendCL.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "acl.hpp"

namespace sim_cann {
/// The kind of an object. An object of another kind than the operator accepts is an error.
enum class Kind : uint64_t { Tensor = 0x5ca77001, Scalar, Ints, Floats, Bools, Tensors, Scalars };
template <Kind expected>
struct Object {
  static constexpr Kind kExpected = expected;
  Kind kind = expected;
};
}  // namespace sim_cann

struct aclTensor : sim_cann::Object<sim_cann::Kind::Tensor> {
  std::vector<int64_t> sizes, strides;
  int64_t offset;  // in elements
  at::ScalarType dtype;
  void* data;  // device memory
};
struct aclScalar : sim_cann::Object<sim_cann::Kind::Scalar> {
  at::Scalar value;
  at::ScalarType dtype;
};
struct aclIntArray : sim_cann::Object<sim_cann::Kind::Ints> {
  std::vector<int64_t> values;
};
struct aclFloatArray : sim_cann::Object<sim_cann::Kind::Floats> {
  std::vector<float> values;
};
struct aclBoolArray : sim_cann::Object<sim_cann::Kind::Bools> {
  std::vector<bool> values;
};
struct aclTensorList : sim_cann::Object<sim_cann::Kind::Tensors> {
  std::vector<aclTensor> tensors;
};
struct aclScalarList : sim_cann::Object<sim_cann::Kind::Scalars> {
  std::vector<at::Scalar> values;
};

namespace sim_cann {

/// Returns libtorch's dtype for AscendCL's number. Throws std::runtime_error for a dtype that libtorch does not have.
at::ScalarType dtype_of(int number);
/// Returns "float32[2, 3]", with the strides unless the tensor is contiguous.
std::string text_of(const aclTensor& tensor);
/// Returns a libtorch tensor on the device's memory, for operators.
at::Tensor open_tensor(const aclTensor& tensor);

}  // namespace sim_cann
