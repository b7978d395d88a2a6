// The table of the export: how each operator of libtorch is written in ONNX.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "export/lowering.hpp"

namespace npu_train::onnx {

struct Row {
  const char* name;  ///< of the operator, without "aten::" and the underscore of those that work in place
  int64_t from, to;  ///< opsets for which the row holds
  void (*lower)(Call&);
  /// Whether options of the operator may be sizes that differ from record to record; the row reads those with Call::size.
  bool sizes = false;
};

constexpr int64_t kFirstOpset = 15, kLastOpset = 20;

/// nullptr if the table has no row for it.
const Row* find_row(const std::string& name, int64_t opset);

// The parts of the table.
const std::vector<Row>& layer_rows();
const std::vector<Row>& pooling_rows();
const std::vector<Row>& arithmetic_rows();
const std::vector<Row>& shape_rows();
const std::vector<Row>& reduction_rows();
const std::vector<Row>& recurrent_rows();

}  // namespace npu_train::onnx
