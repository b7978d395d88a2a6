#include "export/lowering.hpp"

#include <ATen/core/enum_tag.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "export/rows.hpp"
#include "npu_train/base/storage.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/trace/operator_values.hpp"

namespace npu_train::onnx {
namespace {

constexpr const char* kExport = "export_onnx";
constexpr const char* kOutOfPlace = "write the forward without changing a part of a tensor in place (torch::cat, torch::where, y = x + z)";

}  // namespace

Lowering::Lowering(const Records& records, int64_t opset)
    : records_(records),
      names_(records.graph().values().size()),
      constant_(records.graph().values().size()),
      writes_(writes_in(records.graph())),
      free_names_(records.free().size()) {
  model_.opset = opset;
}

OnnxModel Lowering::run() {
  const auto& graph = records_.graph();
  for (size_t v = 0; v < graph.values().size(); ++v) constant_[v] = graph.values()[v].given_by == detail::GraphValue::kOutside;
  for (const auto& value : graph.values())
    if (!value.name.empty()) used_.insert(value.name);  // reserves the names of weights
  for (const auto& result : graph.results())
    check(used_.insert(result.name).second, ErrorKind::Usage, kExport, "an output and another output or weight have the name '",
          result.name, "'; hint: give the outputs other names");
  add_inputs();
  for (op_ = 0; op_ < graph.ops().size(); ++op_) lower(op_);
  add_outputs();
  return std::move(model_);
}

void Lowering::add_inputs() {
  for (size_t i = 0; i < records_.inputs().size(); ++i) {
    const auto value = records_.value_of_input(i);
    if (!value) continue;
    constant_[*value] = false;
    const auto& spec = records_.inputs()[i];
    check(used_.insert(spec.name).second, ErrorKind::Usage, kExport, "an input and an output or weight have the name '", spec.name,
          "'; hint: give the input another name");
    Value input{.name = spec.name, .type = records_.input(i).scalar_type(), .dims = {}};
    for (size_t d = 0; d < spec.shape.size(); ++d) {
      const auto is_it = [&](const FreeSize& size) { return size.name == spec.shape[d].name; };
      const bool free = std::any_of(records_.free().begin(), records_.free().end(), is_it);
      input.dims.push_back({records_.input(i).size(static_cast<int64_t>(d)), free ? spec.shape[d].name : std::string()});
    }
    names_[*value] = input.name;
    model_.inputs.push_back(std::move(input));
  }
}

void Lowering::add_outputs() {
  const auto& graph = records_.graph();
  for (size_t k = 0; k < graph.results().size(); ++k) {
    const auto& result = graph.results()[k];
    must_not_be_stale(result.value, graph.ops().size());
    Value output{.name = result.name, .type = result.tensor.scalar_type(), .dims = {}};
    for (int64_t d = 0; d < result.tensor.dim(); ++d) {
      Ints by_record;
      for (size_t r = 0; r < records_.count(); ++r) by_record.push_back(records_.graph(r).results()[k].tensor.size(d));
      const auto size = records_.size_of(by_record);
      if (size && size->fixed())
        output.dims.push_back({size->factor, ""});
      else if (size && size->factor == 1 && size->free.size() == 1)
        output.dims.push_back({0, records_.free()[size->free[0]].name});
      else
        output.dims.push_back({0, str_cat(result.name, "_", d)});
    }
    model_.nodes.push_back(
        {.name = unique("Identity"), .op = "Identity", .inputs = {name_of(result.value)}, .outputs = {result.name}, .attributes = {}});
    model_.outputs.push_back(std::move(output));
  }
}

void Lowering::lower(size_t op) {
  const auto& made = records_.graph().ops()[op];
  for (const auto value : made.reads) must_not_be_stale(value, op);
  if (records_.host_reads(op, constant_, warnings_)) return;
  if (made.op.hasTag(at::Tag::inplace_view))
    refuse("changes the shape of a tensor in place", "write the form without the underscore: y = x.unsqueeze(0)");
  if (folds(op)) {
    for (const auto value : made.gives) constant_[value] = true;
    return;
  }
  const auto* row = find_row(made.name(), opset());
  if (row == nullptr && made.op.hasTag(at::Tag::nondeterministic_seeded))
    refuse("draws random numbers", "a file computes the same for the same input: draw only if is_training()");
  if (row == nullptr || made.op.schema().name().rfind("aten::", 0) != 0)
    refuse(str_cat("has no form in ONNX opset ", opset(), " here"),
           "write it with other operators; docs/export.md lists those that can be exported");
  if (!row->sizes) must_have_equal_options(op);
  Call call(*this, op);
  row->lower(call);
}

// True if all inputs of the operator are constant, so that its recorded results can be stored instead. False if a later operator changed
// the memory of the results.
bool Lowering::folds(size_t op) const {
  const auto& graph = records_.graph();
  const auto& made = graph.ops()[op];
  if (made.op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  for (const auto value : made.reads)
    if (!constant_[value]) return false;
  for (const auto value : made.gives) {
    for (size_t r = 1; r < records_.count(); ++r)
      if (!records_.tensor(value, r).sizes().equals(records_.tensor(value).sizes())) return false;
    const auto* storage = graph.values()[value].storage;
    if (const auto found = writes_.find(storage); found != writes_.end() && found->second.back() > op) return false;
    // Keeps views of weights as operators, so that a weight keeps its name and, if tied, is in the file only once.
    for (const auto read : made.reads)
      if (!graph.values()[read].name.empty() && graph.values()[read].storage == storage && find_row(made.name(), opset()) != nullptr)
        return false;
  }
  return true;
}

void Lowering::must_not_be_stale(size_t value, size_t before) const {
  const auto& read = records_.graph().values()[value];
  const auto found = writes_.find(read.storage);
  if (found == writes_.end()) return;
  const auto next = std::lower_bound(found->second.begin(), found->second.end(), before);
  if (next == found->second.begin()) return;
  const auto last = *std::prev(next);
  if (static_cast<ptrdiff_t>(last) <= read.given_by) return;
  refuse("reads memory that " + described(records_.graph(), last) + " has changed through another view of it", kOutOfPlace);
}

void Lowering::must_have_equal_options(size_t op) const {
  const auto& made = records_.graph().ops()[op];
  for (size_t r = 1; r < records_.count(); ++r)
    for (size_t i = 0; i < made.args.size(); ++i) {
      const auto &a = made.args[i], &b = records_.graph(r).ops()[op].args[i];
      if (detail::tensors_of(std::vector<c10::IValue>{a}).empty() && !a.isTensor() && !a.isTensorList() && !(a == b))
        refuse(str_cat("has the option '", made.op.schema().arguments()[i].name(), "' ", a, ", and ", b, " where ",
                       records_.free()[r - 1].name, " is ", records_.free()[r - 1].other),
               "compute with tensors instead of sizes, as mean() instead of sum() / size, or fix the size (OnnxOptions::dynamic)");
    }
}

std::string Lowering::unique(const std::string& wish) {
  std::string name = wish;
  for (int64_t i = 1; !used_.insert(name).second; ++i) name = str_cat(wish, "_", i);
  return name;
}

std::string Lowering::node(const std::string& op, Names inputs, Attributes attributes) {
  return nodes(op, std::move(inputs), 1, std::move(attributes))[0];
}

Names Lowering::nodes(const std::string& op, Names inputs, size_t outputs, Attributes attributes) {
  const auto& ops = records_.graph().ops();
  const std::string layer = op_ < ops.size() ? ops[op_].layer : std::string();
  Node node{.name = unique(layer.empty() ? op : layer + "/" + op),
            .op = op,
            .inputs = std::move(inputs),
            .outputs = {},
            .attributes = std::move(attributes),
            .keeps_fp32 = fp32_nodes_};
  while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
  for (size_t i = 0; i < outputs; ++i) node.outputs.push_back(unique(node.name + "_" + std::to_string(i)));
  model_.nodes.push_back(node);
  return node.outputs;
}

std::string Lowering::once(const std::string& key, const at::Tensor& value) {
  auto& name = once_[key];
  if (name.empty()) {
    name = unique(key);
    model_.initializers.emplace_back(name, value);
  }
  return name;
}

std::string Lowering::ints(const Ints& values) {
  std::string key = "ints";
  for (const auto value : values) key += "_" + std::to_string(value);
  return once(key, at::tensor(values, at::kLong));
}

std::string Lowering::number(const c10::Scalar& value, at::ScalarType type) {
  const auto text = value.isFloatingPoint() ? shortest(value.toDouble()) : std::to_string(value.to<int64_t>());
  return once(str_cat("number_", text, "_", c10::toString(type)), at::scalar_tensor(value, at::TensorOptions(type)));
}

std::string Lowering::constant(const std::string& name, const at::Tensor& value) {
  const at::Tensor held = value.detach().to(at::kCPU).contiguous();
  const auto key =
      str_cat("content ", hex64(hash64(held.const_data_ptr(), held.nbytes())), held.sizes(), c10::toString(held.scalar_type()));
  auto& known = once_[key];
  if (known.empty()) {
    known = unique(name);
    model_.initializers.emplace_back(known, held);
  }
  return known;
}

std::string Lowering::name_of(size_t value) {
  auto& name = names_[value];
  if (name.empty()) name = constant_of(value);
  return name;
}

std::string Lowering::constant_of(size_t value) {
  const auto& it = records_.graph().values()[value];
  const auto& held = records_.tensor(value);
  const auto written = writes_.find(it.storage);
  if (written != writes_.end() && static_cast<ptrdiff_t>(written->second.back()) > it.given_by)
    refuse("reads a constant that the forward changes in place", "let the forward work on a copy: x.clone()");
  for (size_t r = 1; r < records_.count(); ++r) {
    const auto& other = records_.tensor(value, r);
    if (!held.is_same(other) && !(held.sizes().equals(other.sizes()) && at::equal(held, other)))
      refuse("reads a tensor that the forward computed from a size without operators", "compute it with operators on tensors");
  }
  if (it.name.empty()) return constant("constant", held);
  const auto found =
      std::find_if(model_.initializers.begin(), model_.initializers.end(), [&](const auto& entry) { return entry.first == it.name; });
  if (found == model_.initializers.end()) model_.initializers.emplace_back(it.name, held.detach());
  return it.name;
}

std::string Lowering::free_size(size_t index) {
  auto& name = free_names_[index];
  if (!name.empty()) return name;
  for (const auto& input : model_.inputs)
    for (size_t d = 0; d < input.dims.size(); ++d)
      if (input.dims[d].name == records_.free()[index].name)
        return name = node("Gather", {node("Shape", {input.name}), ints({static_cast<int64_t>(d)})}, {{"axis", int64_t{0}}});
  refuse("depends on the size '" + records_.free()[index].name + "', but the forward reads no input that has it",
         "fix the size (OnnxOptions::dynamic)");
}

std::string Lowering::shape(const Sizes& sizes) {
  Names parts;
  Ints run;
  const auto flush = [&] {
    if (!run.empty()) parts.push_back(ints(run));
    run.clear();
  };
  for (const auto& size : sizes) {
    if (size.fixed()) {
      run.push_back(size.factor);
      continue;
    }
    flush();
    std::string product = free_size(size.free[0]);
    for (size_t i = 1; i < size.free.size(); ++i) product = node("Mul", {product, free_size(size.free[i])});
    parts.push_back(size.factor == 1 ? product : node("Mul", {product, ints({size.factor})}));
  }
  flush();
  if (parts.empty()) return ints({});
  return parts.size() == 1 ? parts[0] : node("Concat", parts, {{"axis", int64_t{0}}});
}

std::string Lowering::reshape(const std::string& x, const Sizes& sizes) {
  const auto is_free = [](const Size& size) { return !size.fixed(); };
  if (std::count_if(sizes.begin(), sizes.end(), is_free) > 1) return node("Reshape", {x, shape(sizes)});
  Ints numbers;
  for (const auto& size : sizes) numbers.push_back(size.fixed() ? size.factor : -1);
  return node("Reshape", {x, ints(numbers)});
}

std::string Lowering::cast(const std::string& x, at::ScalarType from, at::ScalarType to) {
  if (from == to) return x;
  return node("Cast", {x}, {{"to", static_cast<int64_t>(data_type(to, "'" + x + "'"))}});
}

}  // namespace npu_train::onnx
