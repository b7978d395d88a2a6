#include "export/rows.hpp"

#include <unordered_map>

namespace npu_train::onnx {
namespace {

const std::unordered_multimap<std::string, const Row*>& table() {
  static const auto all = [] {
    std::unordered_multimap<std::string, const Row*> out;
    for (const auto* part : {&layer_rows(), &pooling_rows(), &arithmetic_rows(), &shape_rows(), &reduction_rows(), &recurrent_rows()})
      for (const auto& row : *part) out.emplace(row.name, &row);
    return out;
  }();
  return all;
}

}  // namespace

const Row* find_row(const std::string& name, int64_t opset) {
  const auto [begin, end] = table().equal_range(name);
  for (auto it = begin; it != end; ++it)
    if (it->second->from <= opset && opset <= it->second->to) return it->second;
  return nullptr;
}

}  // namespace npu_train::onnx
