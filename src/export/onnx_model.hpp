// An ONNX model in memory: made by the lowering, written and read as a file, run by the interpreter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "export/onnx_proto.hpp"

namespace npu_train::onnx {

using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;
using Attribute = std::variant<int64_t, double, std::string, Ints, at::Tensor>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

struct Node {
  std::string name{};
  std::string op{};
  Names inputs{};  ///< "" omits an optional one
  Names outputs{};
  Attributes attributes{};
  bool keeps_fp32 = false;  ///< in a file of fp16 too; not written
};

struct Dim {
  int64_t size = 0;
  std::string name{};  ///< of a free size; "" for a fixed one
};

/// An input or output of the graph.
struct Value {
  std::string name{};
  at::ScalarType type = at::kFloat;
  std::vector<Dim> dims{};
};

struct OnnxModel {
  int64_t opset = 17;
  std::vector<Node> nodes{};  ///< each after those whose outputs it reads
  std::vector<std::pair<std::string, at::Tensor>> initializers{};
  std::vector<Value> inputs{}, outputs{};
  std::vector<std::pair<std::string, std::string>> metadata{};
};

/// Error(Usage) for a dtype that ONNX files do not have; `what` names the tensor.
proto::DataType data_type(at::ScalarType type, const std::string& what);
/// Error(Data) for a type that this library does not read.
at::ScalarType scalar_type(int32_t data_type, const std::string& where);

}  // namespace npu_train::onnx
