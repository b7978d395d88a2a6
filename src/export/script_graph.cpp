#include "export/script_graph.hpp"

#include <ATen/core/enum_tag.h>
#include <ATen/ops/equal.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "npu_train/base/storage.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/trace/operator_values.hpp"

namespace npu_train::script {
namespace {

namespace jit = torch::jit;
using onnx::Ints;

constexpr const char* kFixTheSize =
    "compute sizes as multiples of the batch, use -1 for one, or fix the size (the option dynamic, --dynamic)";

std::string identifier(const std::string& name) {
  std::string out = name;
  for (auto& c : out)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return out.empty() || std::isdigit(static_cast<unsigned char>(out[0])) != 0 ? "input_" + out : out;
}

std::vector<at::Tensor> tensors_in(const c10::IValue& value) { return detail::tensors_of(std::array<c10::IValue, 1>{value}); }

// True if the operator draws random numbers. False for dropout(x, p, train=False) and scaled_dot_product_attention(..., dropout_p=0.0).
bool draws(const detail::GraphOp& op) {
  if (!op.op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  const auto& arguments = op.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& name = arguments[i].name();
    if ((name == "train" || name == "training") && op.args[i].isBool() && !op.args[i].toBool()) return false;
    if ((name == "p" || name == "dropout_p" || name == "dropout") && op.args[i].isScalar() && op.args[i].toScalar().toDouble() == 0)
      return false;
  }
  return true;
}

}  // namespace

GraphBuilder::GraphBuilder(const onnx::Records& records, const c10::TypePtr& self)
    : records_(records),
      values_(records.graph().values().size()),
      constant_(records.graph().values().size()),
      writes_(onnx::writes_in(records.graph())) {
  const auto& values = records.graph().values();
  for (size_t v = 0; v < values.size(); ++v) {
    constant_[v] = values[v].given_by == detail::GraphValue::kOutside;
    if (constant_[v] && values[v].name.empty()) fixed_storage_.insert(values[v].storage);
  }
  add_inputs(self);
}

void GraphBuilder::add_inputs(const c10::TypePtr& self) {
  attributes_[""] = graph_->addInput("self")->setType(self);
  std::vector<jit::Value*> inputs;
  for (size_t i = 0; i < records_.inputs().size(); ++i) {
    inputs.push_back(graph_->addInput(identifier(records_.inputs()[i].name))->setType(c10::TensorType::get()));
    const auto value = records_.value_of_input(i);
    if (!value) continue;
    constant_[*value] = false;
    fixed_storage_.erase(records_.graph().values()[*value].storage);
    values_[*value] = inputs.back();
  }
  for (const auto& size : records_.free()) {
    for (size_t i = 0; i < inputs.size() && free_.size() < records_.free().size(); ++i) {
      const auto& shape = records_.inputs()[i].shape;
      const auto is_it = [&](const Extent& extent) { return extent.name == size.name; };
      const auto found = std::find_if(shape.begin(), shape.end(), is_it);
      if (found == shape.end()) continue;
      free_.push_back(graph_->insert(c10::aten::size, {inputs[i], static_cast<int64_t>(found - shape.begin())}));
      break;
    }
  }
}

std::shared_ptr<jit::Graph> GraphBuilder::build() {
  const auto& graph = records_.graph();
  for (op_ = 0; op_ < graph.ops().size(); ++op_) add_operator(op_);
  std::vector<jit::Value*> results;
  for (const auto& result : graph.results()) results.push_back(value_of(result.value));
  graph_->registerOutput(results.size() == 1 ? results[0] : graph_->insertNode(graph_->createTuple(results))->output());
  graph_->lint();
  return graph_;
}

void GraphBuilder::add_operator(size_t op) {
  const auto& made = records_.graph().ops()[op];
  if (made.outputs.empty()) refuse("gives no tensor", "leave it out of the forward");
  if (records_.host_reads(op, constant_, warnings_)) return;
  if (host_fills(op)) {
    constant_[made.gives[0]] = true;  // so that value_of() uses its content
    return;
  }
  must_be_repeatable(op);
  std::vector<jit::Value*> inputs;
  size_t read = 0;
  for (size_t i = 0; i < made.args.size(); ++i) inputs.push_back(argument(op, i, read));
  const auto& schema = made.op.schema();
  auto* node = graph_->create(c10::Symbol::fromQualString(schema.name()), inputs, schema.returns().size());
  for (size_t k = 0; k < schema.returns().size(); ++k) node->output(k)->setType(schema.returns()[k].type());
  graph_->insertNode(node);
  if (node->maybeOperator() == nullptr) refuse("is not an operator of TorchScript", "write it with operators of libtorch (at::, torch::)");
  bind_outputs(op, *node);
}

void GraphBuilder::must_be_repeatable(size_t op) const {
  const auto& made = records_.graph().ops()[op];
  if (draws(made)) refuse("draws random numbers", "a file computes the same for the same input: draw only if is_training()");
  const auto& arguments = made.op.schema().arguments();
  for (size_t k = 0; k < arguments.size(); ++k) {
    const auto* alias = arguments[k].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for (const auto& t : tensors_in(made.args[k]))
      if (fixed_storage_.count(storage_of(t)) != 0)
        refuse("writes to a constant, which would keep the change", "let the forward work on a copy: x.clone()");
  }
}

// True for an empty tensor whose elements the host writes without an operator, as in at::tensor({1, 2}).
bool GraphBuilder::host_fills(size_t op) const {
  static const std::set<std::string> overwriting{"fill", "zero", "copy", "arange", "normal", "uniform", "eye"};
  const auto& made = records_.graph().ops()[op];
  if (!made.gives_one() || (!made.name().starts_with("empty") && !made.name().starts_with("new_empty"))) return false;
  const auto written = writes_.find(storage_of(made.outputs[0].toTensor()));
  if (written == writes_.end()) return true;
  const auto& first = records_.graph().ops()[written->second.front()];
  const auto& arguments = first.op.schema().arguments();
  const bool is_out = std::any_of(arguments.begin(), arguments.end(), [](const auto& argument) { return argument.is_out(); });
  if (!is_out && overwriting.count(first.name()) == 0)
    refuse("is filled without operators and then changed in place", "let the forward work on a copy: x.clone()");
  return false;
}

jit::Value* GraphBuilder::argument(size_t op, size_t index, size_t& read) {
  const auto& made = records_.graph().ops()[op];
  const auto& value = made.args[index];
  const auto next = [&] { return value_of(made.reads[read++]); };
  if (value.isTensor()) return value.toTensor().defined() ? next() : graph_->insertConstant(c10::IValue());
  if (value.isTensorList() || value.isOptionalTensorList()) {
    const bool gaps = value.isOptionalTensorList();
    std::vector<jit::Value*> items;
    for (const c10::IValue& item : value.toList())
      items.push_back(item.isTensor() && item.toTensor().defined() ? next() : graph_->insertConstant(c10::IValue()));
    const auto type = gaps ? c10::TypePtr(c10::OptionalType::ofTensor()) : c10::TypePtr(c10::TensorType::get());
    return graph_->insertNode(graph_->createList(type, items))->output();
  }
  std::vector<c10::IValue> by_record;
  bool equal = true;
  for (size_t r = 0; r < records_.count(); ++r) {
    by_record.push_back(records_.graph(r).ops()[op].args[index]);
    equal = equal && by_record[r] == value;
  }
  if (equal) {
    if (const auto constant = jit::tryInsertConstant(*graph_, value)) return *constant;
    refuse(str_cat("has an option of the type ", value.tagKind()), "use another operator");
  }
  const auto all = [&](auto test) { return std::all_of(by_record.begin(), by_record.end(), test); };
  if (all([](const c10::IValue& v) { return v.isInt(); })) {
    Ints numbers;
    for (const auto& v : by_record) numbers.push_back(v.toInt());
    return integer(numbers);
  }
  if (all([&](const c10::IValue& v) { return v.isIntList() && v.toIntList().size() == value.toIntList().size(); })) {
    std::vector<jit::Value*> items;
    for (size_t k = 0; k < value.toIntList().size(); ++k) {
      Ints numbers;
      for (const auto& v : by_record) numbers.push_back(v.toIntList().get(k));
      items.push_back(integer(numbers));
    }
    return graph_->insertNode(graph_->createList(c10::IntType::get(), items))->output();
  }
  refuse(str_cat("has the option '", made.op.schema().arguments()[index].name(), "' ", value, ", and other values at other sizes"),
         "compute with tensors instead of sizes, as mean() instead of sum() / size, or fix the size (the option dynamic)");
}

jit::Value* GraphBuilder::integer(const Ints& by_record) {
  const auto size = records_.size_of(by_record);
  if (!size) refuse(str_cat("has a size that is not a multiple of a free size: ", c10::IntArrayRef(by_record)), kFixTheSize);
  if (size->fixed()) return graph_->insertConstant(size->factor);
  jit::Value* out = free_[size->free[0]];
  for (size_t i = 1; i < size->free.size(); ++i) out = graph_->insert(c10::aten::mul, {out, free_[size->free[i]]});
  return size->factor == 1 ? out : graph_->insert(c10::aten::mul, {out, size->factor});
}

jit::Value* GraphBuilder::value_of(size_t value) {
  auto& made = values_[value];
  if (made != nullptr) return made;
  const auto& recorded = records_.graph().values()[value];
  if (!recorded.name.empty()) return made = attribute(recorded.name);
  const auto& held = records_.tensor(value);
  for (size_t r = 1; r < records_.count(); ++r) {
    const auto& other = records_.tensor(value, r);
    if (!held.is_same(other) && !(held.sizes().equals(other.sizes()) && at::equal(held, other)))
      refuse("reads a tensor that the forward computed from a size without operators", "compute it with operators on tensors");
  }
  return made = graph_->insertConstant(held.detach().clone());
}

jit::Value* GraphBuilder::attribute(const std::string& path) {
  auto& made = attributes_[path];
  if (made != nullptr) return made;
  const auto dot = path.rfind('.');
  auto* owner = dot == std::string::npos ? attributes_[""] : attribute(path.substr(0, dot));
  // Inserts directly after the owner, and so before all operators, because the first reader may be anywhere.
  const jit::WithInsertPoint after_the_owner(owner->node()->next());
  return attributes_[path] = graph_->insertGetAttr(owner, path.substr(dot == std::string::npos ? 0 : dot + 1));
}

void GraphBuilder::bind_outputs(size_t op, jit::Node& node) {
  const auto& made = records_.graph().ops()[op];
  const bool constant = std::all_of(made.reads.begin(), made.reads.end(), [&](size_t value) { return constant_[value]; });
  size_t given = 0;
  const auto bind = [&](jit::Value* value) {
    values_[made.gives[given]] = value;
    constant_[made.gives[given++]] = constant;
  };
  for (size_t k = 0; k < made.outputs.size(); ++k) {
    if (made.outputs[k].isTensor() && made.outputs[k].toTensor().defined()) bind(node.output(k));
    if (!made.outputs[k].isTensorList()) continue;
    auto* parts = graph_->insertNode(graph_->createListUnpack(node.output(k), made.outputs[k].toList().size()));
    for (auto* part : parts->outputs()) bind(part);
  }
}

}  // namespace npu_train::script
