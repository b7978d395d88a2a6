#include "export/interpreter.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "npu_train/core/error.hpp"

namespace npu_train::onnx {
namespace {

constexpr const char* kRun = "run_onnx";

NodeFunction function_of(const Node& node) {
  for (const auto* part : {&elementwise_nodes(), &layer_nodes(), &shape_nodes()})
    if (const auto found = part->find(node.op); found != part->end()) return found->second;
  throw Error(ErrorKind::Data, kRun, "the node '" + node.name + "' is the operator " + node.op + ", which is not supported",
              "this interpreter is for files that npu_tool export writes; use onnxruntime for others");
}

at::Tensor rounded_from(const at::Tensor& t, at::ScalarType from, at::ScalarType to) {
  return t.defined() && t.scalar_type() == from ? t.to(to) : t;
}

Results run_node(const Node& node, const std::map<std::string, at::Tensor>& values, int64_t opset) {
  std::vector<at::Tensor> inputs;
  bool half = false;
  for (const auto& name : node.inputs) {
    const auto found = values.find(name);
    check(name.empty() || found != values.end(), ErrorKind::Data, kRun, "the node '", node.name, "' reads '", name,
          "', which no node before it gives");
    inputs.push_back(name.empty() ? at::Tensor() : found->second);
    half = half || (inputs.back().defined() && inputs.back().scalar_type() == at::kHalf);
  }
  half = half && node.op != "Cast";
  if (half)
    for (auto& input : inputs) input = rounded_from(input, at::kHalf, at::kFloat);
  auto results = function_of(node)(NodeRun(node, std::move(inputs), opset));
  if (half)
    for (auto& result : results) result = rounded_from(result, at::kFloat, at::kHalf);
  check(results.size() >= node.outputs.size(), ErrorKind::Data, kRun, "the node '", node.name, "' has ", node.outputs.size(), " outputs; ",
        node.op, " gives ", results.size());
  return results;
}

at::Tensor checked_input(const Value& input, const std::map<std::string, at::Tensor>& given) {
  const auto found = given.find(input.name);
  check(found != given.end(), ErrorKind::Usage, kRun, "the input '", input.name, "' is missing");
  const auto& t = found->second;
  bool fits = t.scalar_type() == input.type && static_cast<size_t>(t.dim()) == input.dims.size();
  for (size_t d = 0; fits && d < input.dims.size(); ++d)
    fits = !input.dims[d].name.empty() || input.dims[d].size == t.size(static_cast<int64_t>(d));
  check(fits, ErrorKind::Usage, kRun, "the input '", input.name, "' is ", c10::toString(t.scalar_type()), " ", t.sizes(),
        "; the file has another type or shape for it");
  return t;
}

}  // namespace

Outputs run_model(const OnnxModel& model, const std::map<std::string, at::Tensor>& inputs) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> values;
  for (const auto& [name, value] : model.initializers) values[name] = value;
  for (const auto& input : model.inputs) values[input.name] = checked_input(input, inputs);
  std::map<std::string, size_t> last;  // index of the last node that reads a value
  for (size_t i = 0; i < model.nodes.size(); ++i)
    for (const auto& name : model.nodes[i].inputs) last[name] = i;
  for (const auto& output : model.outputs) last.erase(output.name);
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    const auto& node = model.nodes[i];
    const auto results = run_node(node, values, model.opset);
    for (size_t k = 0; k < node.outputs.size(); ++k) values[node.outputs[k]] = results[k];
    for (const auto& name : node.inputs)
      if (const auto found = last.find(name); found != last.end() && found->second == i) values.erase(name);
  }
  std::vector<Outputs::Field> out;
  for (const auto& output : model.outputs) {
    check(values.count(output.name) != 0, ErrorKind::Data, kRun, "no node gives the output '", output.name, "'");
    out.emplace_back(output.name, values[output.name]);
  }
  return Outputs(std::move(out));
}

Ints NodeRun::elements(size_t i) const {
  if (!has(i)) refuse("has no input " + std::to_string(i));
  const at::Tensor t = inputs_[i].to(at::kLong).contiguous().flatten();
  return {t.const_data_ptr<int64_t>(), t.const_data_ptr<int64_t>() + t.numel()};
}

const Attribute* NodeRun::find(const std::string& name) const {
  const auto found = std::find_if(node_.attributes.begin(), node_.attributes.end(), [&](const auto& entry) { return entry.first == name; });
  return found != node_.attributes.end() ? &found->second : nullptr;
}

int64_t NodeRun::integer(const std::string& name, int64_t otherwise) const {
  const auto* found = find(name);
  return found != nullptr ? std::get<int64_t>(*found) : otherwise;
}

double NodeRun::number(const std::string& name, double otherwise) const {
  const auto* found = find(name);
  return found != nullptr ? std::get<double>(*found) : otherwise;
}

std::string NodeRun::text(const std::string& name, const std::string& otherwise) const {
  const auto* found = find(name);
  return found != nullptr ? std::get<std::string>(*found) : otherwise;
}

Ints NodeRun::ints(const std::string& name, const Ints& otherwise) const {
  const auto* found = find(name);
  return found != nullptr ? std::get<Ints>(*found) : otherwise;
}

void NodeRun::refuse(const std::string& why) const {
  throw Error(ErrorKind::Data, kRun, "the node '" + node_.name + "' (" + node_.op + ") " + why);
}

}  // namespace npu_train::onnx
