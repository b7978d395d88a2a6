#include "export/half.hpp"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <map>
#include <set>

#include "npu_train/core/error.hpp"

namespace npu_train::onnx {
namespace {

bool is_reduction(const std::string& op) { return op.starts_with("Reduce") || op == "CumSum"; }

bool keeps_fp32(const Node& node) {
  static const std::set<std::string> ops{"BatchNormalization",
                                         "InstanceNormalization",
                                         "LayerNormalization",
                                         "Softmax",
                                         "LogSoftmax",
                                         "GlobalAveragePool",
                                         "AveragePool",
                                         "Exp",
                                         "Log",
                                         "Pow",
                                         "Sqrt",
                                         "Reciprocal",
                                         "Softplus",
                                         "Resize",
                                         "Range",
                                         "LSTM",
                                         "GRU"};
  return node.keeps_fp32 || is_reduction(node.op) || ops.count(node.op) != 0;
}

bool is_elementwise(const std::string& op) {
  return op == "Add" || op == "Sub" || op == "Mul" || op == "Div" || op == "Max" || op == "Min";
}

// Returns whether an operator only moves elements: such an operator keeps the type of its input.
bool only_moves(const std::string& op) {
  static const std::set<std::string> ops{"Transpose", "Reshape",        "Flatten", "Squeeze", "Unsqueeze", "Slice",
                                         "Gather",    "GatherElements", "Split",   "Expand",  "Tile",      "Identity"};
  return ops.count(op) != 0;
}

class Converter {
 public:
  explicit Converter(const OnnxModel& from)
      : from_(from),
        out_{.opset = from.opset,
             .nodes = {},
             .initializers = {},
             .inputs = from.inputs,
             .outputs = from.outputs,
             .metadata = from.metadata} {}

  OnnxModel run() {
    for (const auto& input : from_.inputs) types_[input.name] = input.type;
    for (const auto& [name, value] : from_.initializers) types_[name] = value.scalar_type(), initial_.insert(name);
    for (const auto& node : from_.nodes) classify(node);
    convert_initializers();
    for (const auto& node : from_.nodes) convert(node);
    return std::move(out_);
  }

 private:
  bool is_float(const std::string& name) const {
    const auto found = types_.find(name);
    return found != types_.end() && found->second == at::kFloat;
  }

  // Returns the type of an output in the fp32 model.
  at::ScalarType type_of(const Node& node, size_t output) const {
    static const std::set<std::string> of_bool{"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or"};
    if (of_bool.count(node.op) != 0) return at::kBool;
    if (node.op == "Shape" || node.op == "ArgMax" || node.op == "ArgMin" || (node.op == "TopK" && output == 1)) return at::kLong;
    if (node.op == "Cast") return scalar_type(static_cast<int32_t>(std::get<int64_t>(node.attributes[0].second)), node.name);
    return types_.at(node.inputs[node.op == "Where" ? 1 : 0]);
  }

  // Determines which nodes stay fp32, and the types of their outputs.
  void classify(const Node& node) {
    bool fp32 = keeps_fp32(node) || (only_moves(node.op) && initial_.count(node.inputs[0]) == 0 && in_fp32_.count(node.inputs[0]) != 0);
    if (is_elementwise(node.op)) {
      const auto from_reduction = [&](const std::string& name) { return reduced_.count(name) != 0; };
      const auto constant_or_reduced = [&](const std::string& name) { return initial_.count(name) != 0 || from_reduction(name); };
      fp32 = fp32 || (std::any_of(node.inputs.begin(), node.inputs.end(), from_reduction) &&
                      std::all_of(node.inputs.begin(), node.inputs.end(), constant_or_reduced));
    }
    const bool of_reductions = is_reduction(node.op) || (fp32 && !node.inputs.empty() && reduced_.count(node.inputs[0]) != 0);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      types_[node.outputs[i]] = type_of(node, i);
      if (fp32) in_fp32_.insert(node.outputs[i]);
      if (of_reductions) reduced_.insert(node.outputs[i]);
    }
    for (const auto& name : node.inputs) (fp32 ? read_in_fp32_ : read_in_half_).insert(name);
    if (fp32) fp32_nodes_.insert(node.name);
  }

  void convert_initializers() {
    for (const auto& [name, value] : from_.initializers) {
      const bool half = value.scalar_type() == at::kFloat && read_in_half_.count(name) != 0;
      if (!half) {
        in_fp32_.insert(name);
        out_.initializers.emplace_back(name, value);
        continue;
      }
      const at::Tensor converted = value.to(at::kHalf);
      const bool fits = at::isfinite(value).eq(at::isfinite(converted)).all().item<bool>();
      check(fits, ErrorKind::Usage, "export_onnx", "'", name, "' has values beyond 65504, which fp16 cannot hold",
            "; hint: export in fp32, or use ", "-inf in masks");
      out_.initializers.emplace_back(name, converted);
      if (value.numel() > 1 || read_in_fp32_.count(name) == 0) continue;
      // Keeps a number that is read in both types also in fp32, so that an epsilon too small for fp16 is not lost.
      const auto exact = free_name(name, true);
      casts_[{name, true}] = exact;
      out_.initializers.emplace_back(exact, value);
    }
    for (const auto& input : from_.inputs) in_fp32_.insert(input.name);
  }

  std::string as(const std::string& name, bool fp32) {
    if (name.empty() || !is_float(name) || fp32 == (in_fp32_.count(name) != 0)) return name;
    auto& made = casts_[{name, fp32}];
    if (!made.empty()) return made;
    made = free_name(name, fp32);
    add_cast(name, made, fp32);
    return made;
  }

  std::string free_name(const std::string& name, bool fp32) {
    std::string out = name + (fp32 ? "_fp32" : "_fp16");
    while (types_.count(out) != 0) out += "_";
    types_[out] = at::kFloat;
    return out;
  }

  void add_cast(const std::string& from, const std::string& to, bool fp32) {
    const auto type = fp32 ? proto::DataType::Float : proto::DataType::Float16;
    out_.nodes.push_back(
        {.name = to + "_cast", .op = "Cast", .inputs = {from}, .outputs = {to}, .attributes = {{"to", static_cast<int64_t>(type)}}});
  }

  void convert(const Node& node) {
    // Keeps the types of the graph's outputs.
    if (node.op == "Identity" && is_float(node.outputs[0]) && is_output(node.outputs[0]) && in_fp32_.count(node.inputs[0]) == 0)
      return add_cast(node.inputs[0], node.outputs[0], true);
    const bool fp32 = fp32_nodes_.count(node.name) != 0 || (node.op == "Identity" && is_output(node.outputs[0]));
    Node out = node;
    for (auto& name : out.inputs) name = as(name, fp32);
    if (node.op == "Cast" && is_float(node.outputs[0]) && !fp32) out.attributes = {{"to", static_cast<int64_t>(proto::DataType::Float16)}};
    out_.nodes.push_back(std::move(out));
  }

  bool is_output(const std::string& name) const {
    return std::any_of(from_.outputs.begin(), from_.outputs.end(), [&](const Value& output) { return output.name == name; });
  }

  const OnnxModel& from_;
  OnnxModel out_;
  std::map<std::string, at::ScalarType> types_;  // types in the fp32 model
  std::set<std::string> initial_, reduced_, in_fp32_, read_in_half_, read_in_fp32_, fp32_nodes_;
  std::map<std::pair<std::string, bool>, std::string> casts_;
};

}  // namespace

OnnxModel in_half_precision(const OnnxModel& model) { return Converter(model).run(); }

}  // namespace npu_train::onnx
