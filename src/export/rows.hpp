// The export table: how each libtorch operator is written in ONNX.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "export/lowering.hpp"

namespace npu_train::onnx {

struct Row {
  const char* name;  ///< operator without "aten::" and without the underscore of in-place forms
  int64_t from, to;  ///< first and last opset of the row
  void (*lower)(Call&);
  /// true: arguments may be sizes that differ between records; the row reads them with Call::size.
  bool sizes = false;
};

constexpr int64_t kFirstOpset = 15, kLastOpset = 20;

/// Returns nullptr if the table has no row for the operator.
const Row* find_row(const std::string& name, int64_t opset);

// The parts of the table.
const std::vector<Row>& layer_rows();
const std::vector<Row>& pooling_rows();
const std::vector<Row>& arithmetic_rows();
const std::vector<Row>& shape_rows();
const std::vector<Row>& reduction_rows();
const std::vector<Row>& recurrent_rows();

}  // namespace npu_train::onnx
