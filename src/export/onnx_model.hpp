// An ONNX model in memory: the lowering makes it, and the writer stores it as a file.
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
  Names inputs{};  ///< "" omits an optional input
  Names outputs{};
  Attributes attributes{};
  bool keeps_fp32 = false;  ///< stays fp32 in an fp16 model; not written to files
};

struct Dim {
  int64_t size = 0;
  std::string name{};  ///< name of a free size; "" if the size is fixed
};

/// An input or output of the graph.
struct Value {
  std::string name{};
  at::ScalarType type = at::kFloat;
  std::vector<Dim> dims{};
};

struct OnnxModel {
  int64_t opset = 17;
  std::vector<Node> nodes{};  ///< in topological order
  std::vector<std::pair<std::string, at::Tensor>> initializers{};
  std::vector<Value> inputs{}, outputs{};
  std::vector<std::pair<std::string, std::string>> metadata{};
};

/// Error(Usage) for a dtype that ONNX does not support; `what` names the tensor.
proto::DataType data_type(at::ScalarType type, const std::string& what);
/// Returns the dtype for a type that data_type() has returned; `where` names the node.
at::ScalarType scalar_type(int32_t data_type, const std::string& where);

}  // namespace npu_train::onnx
