#include "tools/align/dump_node.hpp"

#include <cmath>

#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {

std::string json_string(const std::string& text) { return Json(text).dump(0); }

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return Json(value).dump(0);
}

namespace {

std::string number_or_null(const std::optional<double>& value) { return value ? json_number(*value) : "null"; }

std::string leaf_json(const DumpLeaf& leaf) {
  std::string out = "{\"type\": " + json_string(leaf.type);
  if (leaf.type != "torch.Tensor") return out + ", \"value\": " + leaf.value + "}";
  out += ", \"dtype\": " + json_string(leaf.dtype) + ", \"shape\": [";
  for (size_t i = 0; i < leaf.shape.size(); ++i) out += (i > 0 ? ", " : "") + std::to_string(leaf.shape[i]);
  out += "]";
  if (leaf.statistics) {
    const auto& s = *leaf.statistics;
    out += ", \"Max\": " + number_or_null(s.max) + ", \"Min\": " + number_or_null(s.min) + ", \"Mean\": " + number_or_null(s.mean) +
           ", \"Norm\": " + number_or_null(s.norm);
  }
  out += std::string(", \"requires_grad\": ") + (leaf.requires_grad ? "true" : "false");
  if (!leaf.phase.empty()) out += ", \"phase\": " + json_string(leaf.phase);
  if (!leaf.parameter.empty()) out += ", \"parameter\": " + json_string(leaf.parameter);
  if (leaf.crc) out += printed(", \"md5\": \"%08x\"", *leaf.crc);
  if (!leaf.data_name.empty()) out += ", \"data_name\": " + json_string(leaf.data_name);
  if (leaf.sampled > 0) out += ", \"sampled\": " + std::to_string(leaf.sampled);
  return out + "}";
}

}  // namespace

std::string to_json(const DumpNode& node) {
  if (node.kind == DumpNode::Kind::Null) return "null";
  if (node.kind == DumpNode::Kind::Leaf) return leaf_json(*node.leaf);
  const bool map = node.kind == DumpNode::Kind::Map;
  std::string out = map ? "{" : "[";
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (i > 0) out += ", ";
    if (map) out += json_string(node.items[i].first) + ": ";
    out += to_json(node.items[i].second);
  }
  return out + (map ? "}" : "]");
}

}  // namespace npu_train::detail
