#include "export/onnx_model.hpp"

#include <algorithm>
#include <array>

#include "npu_train/core/error.hpp"

namespace npu_train::onnx {
namespace {

using proto::DataType;

constexpr std::array<std::pair<at::ScalarType, DataType>, 10> kTypes{{{at::kFloat, DataType::Float},
                                                                      {at::kByte, DataType::Uint8},
                                                                      {at::kChar, DataType::Int8},
                                                                      {at::kShort, DataType::Int16},
                                                                      {at::kInt, DataType::Int32},
                                                                      {at::kLong, DataType::Int64},
                                                                      {at::kBool, DataType::Bool},
                                                                      {at::kHalf, DataType::Float16},
                                                                      {at::kDouble, DataType::Double},
                                                                      {at::kBFloat16, DataType::Bfloat16}}};

}  // namespace

DataType data_type(at::ScalarType type, const std::string& what) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& entry) { return entry.first == type; });
  check(found != kTypes.end(), ErrorKind::Usage, "export_onnx", what, " has the dtype ", c10::toString(type),
        ", which ONNX files do not have; hint: convert it to float32 or int64");
  return found->second;
}

at::ScalarType scalar_type(int32_t data_type, const std::string& where) {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& entry) { return static_cast<int32_t>(entry.second) == data_type; });
  check(found != kTypes.end(), ErrorKind::Internal, "export_onnx", "'", where, "' has the data type ", data_type, ", which no dtype has");
  return found->first;
}

}  // namespace npu_train::onnx
