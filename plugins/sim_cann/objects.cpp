#include "objects.hpp"

#include <cstdio>
#include <stdexcept>

namespace sim_cann {

at::ScalarType dtype_of(int number) {
  switch (number) {
    case 0:
      return at::kFloat;
    case 1:
      return at::kHalf;
    case 2:
      return at::kChar;
    case 3:
      return at::kInt;
    case 4:
      return at::kByte;
    case 6:
      return at::kShort;
    case 7:
      return at::kUInt16;
    case 8:
      return at::kUInt32;
    case 9:
      return at::kLong;
    case 10:
      return at::kUInt64;
    case 11:
      return at::kDouble;
    case 12:
      return at::kBool;
    case 16:
      return at::kComplexFloat;
    case 17:
      return at::kComplexDouble;
    case 27:
      return at::kBFloat16;
    default:
      throw std::runtime_error("sim_cann has no dtype " + std::to_string(number) + " of AscendCL");
  }
}

namespace {

std::string list(const std::vector<int64_t>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return out + "]";
}

bool is_contiguous(const aclTensor& t) {
  int64_t expected = 1;
  for (size_t i = t.sizes.size(); i-- > 0;) {
    if (t.sizes[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.sizes[i];
  }
  return true;
}

template <class T, class Make>
T* create(const char* function, const Make& make) {
  try {
    return make();
  } catch (const std::exception& e) {
    fail(kInvalidArgument, std::string("EZ1001: ") + function + ": " + e.what());
    return nullptr;
  }
}

at::Scalar scalar_of(const void* value, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return *static_cast<const float*>(value);
    case at::kDouble:
      return *static_cast<const double*>(value);
    case at::kHalf:
      return static_cast<float>(*static_cast<const at::Half*>(value));
    case at::kBFloat16:
      return static_cast<float>(*static_cast<const at::BFloat16*>(value));
    case at::kLong:
      return *static_cast<const int64_t*>(value);
    case at::kInt:
      return *static_cast<const int32_t*>(value);
    case at::kShort:
      return *static_cast<const int16_t*>(value);
    case at::kChar:
      return *static_cast<const int8_t*>(value);
    case at::kByte:
      return *static_cast<const uint8_t*>(value);
    case at::kBool:
      return *static_cast<const bool*>(value);
    case at::kComplexFloat:
      return *static_cast<const c10::complex<float>*>(value);
    case at::kComplexDouble:
      return *static_cast<const c10::complex<double>*>(value);
    default:
      throw std::runtime_error(std::string("no scalars of ") + at::toString(dtype));
  }
}

}  // namespace

std::string text_of(const aclTensor& t) {
  std::string out = std::string(at::toString(t.dtype)) + list(t.sizes);
  return is_contiguous(t) ? out : out + " strides " + list(t.strides);
}

at::Tensor open_tensor(const aclTensor& t) {
  int64_t first = t.offset, last = t.offset;
  bool empty = false;
  for (size_t i = 0; i < t.sizes.size(); ++i) {
    empty |= t.sizes[i] == 0;
    (t.strides[i] < 0 ? first : last) += (t.sizes[i] - 1) * t.strides[i];
  }
  const auto width = static_cast<int64_t>(at::elementSize(t.dtype));
  const auto options = at::TensorOptions().dtype(t.dtype);
  if (empty) return at::empty_strided(t.sizes, t.strides, options);
  auto* start = static_cast<char*>(t.data) + first * width;
  auto* bytes = static_cast<char*>(host_address(start, static_cast<size_t>((last - first + 1) * width)));
  return at::from_blob(bytes + (t.offset - first) * width, t.sizes, t.strides, options);
}

}  // namespace sim_cann

using namespace sim_cann;

SIM_CANN_ENTRY aclTensor* aclCreateTensor(const int64_t* sizes, uint64_t count, int dtype, const int64_t* strides, int64_t offset, int,
                                          const int64_t*, uint64_t, void* data) {
  return create<aclTensor>("aclCreateTensor", [&] {
    return new aclTensor{{}, {sizes, sizes + count}, {strides, strides + count}, offset, dtype_of(dtype), data};
  });
}
SIM_CANN_ENTRY aclScalar* aclCreateScalar(void* value, int dtype) {
  return create<aclScalar>("aclCreateScalar", [&] { return new aclScalar{{}, scalar_of(value, dtype_of(dtype)), dtype_of(dtype)}; });
}
SIM_CANN_ENTRY aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return new aclIntArray{{}, {values, values + count}};
}
SIM_CANN_ENTRY aclFloatArray* aclCreateFloatArray(const float* values, uint64_t count) {
  return new aclFloatArray{{}, {values, values + count}};
}
SIM_CANN_ENTRY aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
  return new aclBoolArray{{}, std::vector<bool>(values, values + count)};
}
// A list owns its elements. In CANN, they are destroyed together with the list. Here, the list copies them, and they are destroyed
// immediately.
SIM_CANN_ENTRY aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t count) {
  auto* out = new aclTensorList;
  for (uint64_t i = 0; i < count; ++i) {
    out->tensors.push_back(tensors[i] == nullptr ? aclTensor{{}, {}, {}, 0, at::ScalarType::Undefined, nullptr} : *tensors[i]);
    delete tensors[i];
  }
  return out;
}
SIM_CANN_ENTRY aclScalarList* aclCreateScalarList(const aclScalar* const* scalars, uint64_t count) {
  auto* out = new aclScalarList;
  for (uint64_t i = 0; i < count; ++i) {
    out->values.push_back(scalars[i]->value);
    delete scalars[i];
  }
  return out;
}

#define SIM_CANN_DESTROY(TYPE)                              \
  SIM_CANN_ENTRY int aclDestroy##TYPE(const acl##TYPE* p) { \
    delete p;                                               \
    return kSuccess;                                        \
  }
SIM_CANN_DESTROY(Tensor)
SIM_CANN_DESTROY(Scalar)
SIM_CANN_DESTROY(IntArray)
SIM_CANN_DESTROY(FloatArray)
SIM_CANN_DESTROY(BoolArray)
SIM_CANN_DESTROY(TensorList)
SIM_CANN_DESTROY(ScalarList)

// Returns the sizes that an operator such as nonzero has found. The caller deletes the array with delete[].
SIM_CANN_ENTRY int aclGetViewShape(const aclTensor* tensor, int64_t** sizes, uint64_t* count) {
  *count = tensor->sizes.size();
  *sizes = new int64_t[tensor->sizes.size()];
  std::copy(tensor->sizes.begin(), tensor->sizes.end(), *sizes);
  return kSuccess;
}
