#include "tools/align/dump_recorder.hpp"

#include <algorithm>

#include "npu_train/base/storage.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "tools/align/dump_names.hpp"

namespace npu_train::detail {
namespace {

bool makes_no_values(const SeenOp& op) {
  if (op.name.ends_with("_")) return op.name == "resize_" || op.name == "set_";
  const bool view = !op.inputs.empty() && op.inputs[0].isTensor() && storage_of(op.output) == storage_of(op.inputs[0].toTensor());
  return view || op.name.starts_with("empty") || op.name.starts_with("new_empty");
}

}  // namespace

DumpRecorder::DumpRecorder(const DumpOptions& options, const DumpedModel& model, TensorSink& sink, std::unique_ptr<DumpFolder> folder,
                           bool saturates)
    : options_(options),
      model_(model),
      filter_(options),
      folder_(std::move(folder)),
      leaves_(options, sink, folder_->tensors(), saturates) {
  for (const auto& p : model.parameters) is_leaf_.emplace(layer_of(p.name), true);
  for (const auto& [layer, leaf] : is_leaf_)  // a layer that encloses other layers is not a leaf
    for (auto above = layer; !above.empty();)
      if (const auto found = is_leaf_.find(above = layer_of(above)); found != is_leaf_.end()) found->second = false;
}

// Returns the layer of a parameter. If that layer contains other layers, and thus more than one operator, returns the parameter itself.
std::string DumpRecorder::owner_of(const std::string& parameter) const {
  const auto layer = layer_of(parameter);
  const auto found = is_leaf_.find(layer);
  return found != is_leaf_.end() && found->second ? layer : parameter;
}

std::string DumpRecorder::base_of(const std::string& owner, const std::string& op) const {
  const auto type = model_.types.find(owner);
  const std::string name = type != model_.types.end()                 ? type->second
                           : model_.parameters.find(owner) != nullptr ? "Parameter"
                                                                      : class_of_operator(op);
  return "Module." + (owner.empty() ? "" : owner + ".") + name;
}

std::string DumpRecorder::around() const { return layers_.empty() ? std::string() : layers_.back().name; }

DumpNode DumpRecorder::tensors(const std::vector<at::Tensor>& values, const std::string& name, bool keep) {
  auto out = DumpNode::list();
  for (size_t i = 0; i < values.size(); ++i) out.add(leaves_.tensor(values[i], name + "." + std::to_string(i), keep));
  return out;
}

std::vector<at::Tensor> DumpRecorder::data_inputs(const SeenOp& op) {
  std::vector<at::Tensor> out;
  for (const auto& input : op.tensors)
    if (input.known.empty()) out.push_back(input.value);
  return out;
}

DumpNode DumpRecorder::argument(const SeenOp& op, const c10::IValue& value, const std::string& name, bool keep) {
  auto out = leaves_.value(value, name, keep);
  if (!value.isTensor() || out.kind != DumpNode::Kind::Leaf) return out;
  const auto& tensor = value.toTensor();
  const auto seen = std::find_if(op.tensors.begin(), op.tensors.end(), [&](const SeenInput& t) { return t.value.is_same(tensor); });
  if (seen == op.tensors.end() || seen->known.empty()) return out;
  const auto* parameter = model_.parameters.find(seen->known);
  // in a view with other strides, the elements have another order
  if (parameter != nullptr && parameter->value.sizes() == tensor.sizes() && parameter->value.strides() == tensor.strides())
    out.leaf->parameter = seen->known;
  return out;
}

// Records each parameter as the model stores it, instead of the view or cast that the operator received. The stored parameter is the same
// in every precision.
DumpNode DumpRecorder::parameters_of(const SeenOp& op, const OpenCall& call) {
  auto out = DumpNode::map();
  for (const auto& input : op.tensors) {
    if (input.known.empty()) continue;
    const auto key = input.known.substr(input.known.rfind('.') + 1);
    const auto* parameter = model_.parameters.find(input.known);
    const auto buffer = std::find_if(model_.buffers.begin(), model_.buffers.end(), [&](const auto& b) { return b.first == input.known; });
    const auto& value = parameter != nullptr ? parameter->value : buffer != model_.buffers.end() ? buffer->second : input.value;
    if (parameter == nullptr) leaves_.forget(value);  // running statistics may change without a new version of the tensor
    out.set(key, leaves_.tensor(value, call.name + ".parameters." + key));
  }
  return out;
}

DumpNode DumpRecorder::own_parameters(const OpenCall& call) {
  auto out = DumpNode::map();
  for (const auto& p : model_.parameters)
    if (layer_of(p.name) == call.owner) {
      const auto key = p.name.substr(p.name.rfind('.') + 1);
      out.set(key, leaves_.tensor(p.value, call.name + ".parameters." + key));
    }
  return out;
}

bool DumpRecorder::OpenCall::gave(const at::Tensor& value) const {
  const auto same = [&](const at::Tensor& t) { return storage_of(t) == storage_of(value); };
  return (!outputs.empty() && same(outputs.front())) || std::any_of(casts.begin(), casts.end(), same);
}

DumpRecorder::OpenCall DumpRecorder::open(const std::string& owner, const std::string& op, std::vector<at::Tensor> inputs, uint64_t begin) {
  OpenCall call;
  call.owner = owner;
  call.base = base_of(owner, op);
  const auto number = std::to_string(next_number(call.base));
  call.name = call.base + ".forward." + number;
  call.wanted = filter_.enter(call.base);
  if (call.wanted) wanted_.insert(call.base);
  call.inputs = std::move(inputs);
  call.entry.name = call.name;
  call.entry.parent = around();
  if (!call.wanted) return call;
  if (filter_.direction("forward") && filter_.side("input"))
    call.entry.content.set("input_args", tensors(call.inputs, call.name + ".input"));
  if (filter_.direction("forward") && filter_.side("input")) call.entry.content.set("input_kwargs", DumpNode::map());
  if (!filter_.direction("backward")) return call;
  call.backward = add_backward(call.base + ".backward." + number, call.entry.parent, call.inputs.size());
  call.graph = CallGraph(call.inputs, begin);
  return call;
}

void DumpRecorder::set_outputs(OpenCall& call, std::vector<at::Tensor> outputs) {
  call.outputs = std::move(outputs);
  if (!call.wanted) return;
  auto& items = call.entry.content.items;
  std::erase_if(items, [](const auto& item) { return item.first == "output"; });
  if (options_.task == "overflow_check") {
    keep_overflow(call);
  } else if (filter_.direction("forward") && filter_.side("output")) {
    items.push_back({"output", tensors(call.outputs, call.name + ".output")});
  }
  if (call.backward != kNone) watch_outputs(call.backward, call.outputs, call.graph);
}

void DumpRecorder::finish(OpenCall& call) {
  filter_.leave(call.base);
  if (!call.wanted || !filter_.direction("forward")) return;
  if (options_.task != "overflow_check" || call.overflowed) emit(std::move(call.entry));
}

// Writes the values immediately, because the next operator may change them in place.
void DumpRecorder::keep_overflow(OpenCall& call) {
  call.overflowed = leaves_.overflowed(tensors(call.outputs, call.name + ".output"));
  if (!call.overflowed) return;
  call.entry.content = DumpNode::map();
  call.entry.content.set("input_args", tensors(call.inputs, call.name + ".input", /*keep=*/true));
  call.entry.content.set("input_kwargs", DumpNode::map());
  call.entry.content.set("output", tensors(call.outputs, call.name + ".output", /*keep=*/true));
}

void DumpRecorder::close_call() {
  if (!call_) return;
  auto call = std::move(*call_);
  call_.reset();
  finish(call);
}

void DumpRecorder::op_begins(const SeenOp& op) {
  const std::lock_guard lock(mutex_);
  before_ = {};
  begin_ = next_autograd_node();
  if (closed_ || !filter_.operators() || !op.name.ends_with("_") || op.inputs.empty()) return;
  const auto base = operator_base(op.library, op.name);
  if (filter_.direction("forward") && filter_.side("input"))
    before_ = leaves_.value(op.inputs[0], base + "." + std::to_string(calls_[base]) + ".forward.input.0");
}

void DumpRecorder::op_ended(const SeenOp& op) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  const bool values = !makes_no_values(op);
  const bool goes_on = call_ && is_cast(op) && !op.tensors.empty() && call_->gave(op.tensors[0].value);  // a cast of the call's output
  if (goes_on && values) call_->casts.push_back(op.output);
  if (op.parameter.empty() && values && !goes_on) close_call();
  if (filter_.modules() && !op.parameter.empty()) module_op(op);
  if (filter_.operators() && values) plain_op(op);
}

void DumpRecorder::module_op(const SeenOp& op) {
  const auto owner = owner_of(op.parameter);
  if (!layers_.empty() && layers_.back().owner == owner) return;  // a declared layer is dumped as one call
  auto inputs = data_inputs(op);
  const bool again =
      call_ && std::any_of(op.tensors.begin(), op.tensors.end(), [&](const auto& t) { return call_->used.count(t.known) != 0; });
  const bool goes_on = call_ && call_->owner == owner && !again &&
                       std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& t) { return call_->gave(t); });
  if (!goes_on) {
    close_call();
    call_ = open(owner, op.name, std::move(inputs), begin_);
    call_->entry.stack = "operator " + op.name + " with " + op.parameter + (op.scope.empty() ? "" : ", in " + op.scope);
  }
  for (const auto& input : op.tensors)
    if (model_.parameters.find(input.known) != nullptr) call_->used.insert(input.known);
  if (call_->wanted && filter_.direction("forward") && filter_.side("input")) {
    auto parameters = parameters_of(op, *call_);
    auto& items = call_->entry.content.items;
    const auto there = std::find_if(items.begin(), items.end(), [](const auto& item) { return item.first == "parameters"; });
    if (there == items.end())
      items.push_back({"parameters", std::move(parameters)});
    else
      for (auto& [key, node] : parameters.items) there->second.set(key, std::move(node));
  }
  set_outputs(*call_, op.outputs);
}

void DumpRecorder::plain_op(const SeenOp& op) {
  const auto base = operator_base(op.library, op.name);
  const auto number = std::to_string(next_number(base));
  const bool wanted = filter_.enter(base + "." + number);
  filter_.leave(base + "." + number);
  if (!wanted) return;
  DumpEntry entry;
  entry.name = base + "." + number + ".forward";
  const bool in_call = call_ && !op.parameter.empty() && call_->owner == owner_of(op.parameter);
  if (filter_.modules()) entry.parent = in_call ? call_->name : around();
  entry.stack = op.parameter.empty() ? op.scope.empty() ? "" : "in " + op.scope : "with " + op.parameter;
  std::vector<at::Tensor> inputs = data_inputs(op);
  if (filter_.direction("backward")) {
    if (op.name.ends_with("_") && !inputs.empty()) inputs.erase(inputs.begin());  // the first input was overwritten by the output
    CallGraph graph(inputs, begin_);
    watch_outputs(add_backward(base + "." + number + ".backward", entry.parent, inputs.size()), op.outputs, graph);
  }
  if (!filter_.direction("forward")) return;
  const auto output = [&](bool keep) { return tensors(op.outputs, entry.name + ".output", keep); };
  const bool only_overflows = options_.task == "overflow_check";
  if (only_overflows && !leaves_.overflowed(output(false))) return;
  if (filter_.side("input")) {
    auto arguments = DumpNode::list();
    const auto order = argument_order(op.name, op.inputs.size());
    for (size_t i = 0; i < order.size(); ++i)
      arguments.add(i == 0 && before_.kind != DumpNode::Kind::Null
                        ? std::move(before_)
                        : argument(op, op.inputs[order[i]], entry.name + ".input." + std::to_string(i), only_overflows));
    entry.content.set("input_args", std::move(arguments));
    entry.content.set("input_kwargs", DumpNode::map());
  }
  if (filter_.side("output")) entry.content.set("output", output(only_overflows));
  emit(std::move(entry));
}

void DumpRecorder::layer_begins(const SeenLayer& layer) {
  const std::lock_guard lock(mutex_);
  if (closed_ || !filter_.modules()) return;
  close_call();
  auto call = open(layer.path, "layer", layer.inputs, next_autograd_node());
  call.entry.stack = "declared layer";
  if (call.wanted && filter_.direction("forward") && filter_.side("input"))
    if (auto parameters = own_parameters(call); !parameters.items.empty()) call.entry.content.set("parameters", std::move(parameters));
  layers_.push_back(std::move(call));
}

void DumpRecorder::layer_ended(const SeenLayer& layer) {
  const std::lock_guard lock(mutex_);
  if (filter_.named_values() && layer.names_value && !layer.outputs.empty()) named_value(layer.path, layer.outputs[0]);
  if (closed_ || layers_.empty()) return;
  close_call();
  auto call = std::move(layers_.back());
  layers_.pop_back();
  set_outputs(call, layer.outputs);
  if (call.inputs.empty() && call.outputs.empty()) call.wanted = false;
  finish(call);
}

// Returns a name that no other value of the step has. A key that occurs twice would make the document unreadable.
std::string DumpRecorder::name_of_value(const std::string& base) {
  std::string out;
  do out = base + "." + std::to_string(next_number(base)) + ".debug";
  while (!named_.insert(out).second);
  return out;
}

void DumpRecorder::emit_value(const std::string& name, const at::Tensor& value, const char* phase) {
  leaves_.forget(value);  // fused optimizers change tensors without a new version
  auto node = leaves_.tensor(value, name);
  if (node.leaf) node.leaf->phase = phase;
  leaves_.forget(value);  // the leaf, whose phase is that of this named value, must not be reused
  emit({.name = name, .content = std::move(node)});
}

void DumpRecorder::named_value(const std::string& name, const at::Tensor& value) {
  const std::lock_guard lock(mutex_);
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  if (closed_ || !filter_.enter(name)) return;
  if (filter_.direction(forward_over_ ? "backward" : "forward")) emit_value(name_of_value(name), value, forward_over_ ? "update" : "");
  const bool has_gradient = !forward_over_ && value.requires_grad() && !value.is_leaf();  // a hook on a leaf would never be removed
  if (!has_gradient || !filter_.direction("backward")) return;
  value.register_hook([weak = weak_from_this(), of = name_of_value(name + "_grad")](const at::Tensor& gradient) {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard lock_of_hook(self->mutex_);
    const at::RecordFunctionGuard not_seen(/*is_enabled=*/false);
    // As for layers, a second backward pass over the same graph is not recorded.
    if (!self->closed_ && self->arrived_.insert(of).second) self->emit_value(of, gradient, "backward");
  });
}

void DumpRecorder::begin_forward() {
  const std::lock_guard lock(mutex_);
  forward_over_ = false;  // another micro-batch, or a second loss
}

void DumpRecorder::end_forward() {
  const std::lock_guard lock(mutex_);
  close_call();
  layers_.clear();  // a forward pass that threw leaves open layers
  folder_->flush();
}

void DumpRecorder::emit(DumpEntry entry) {
  const auto& words = options_.data_mode;
  const bool optimizer = entry.name.starts_with("Module.optimizer."),
             wanted = std::find(words.begin(), words.end(), "optimizer") != words.end();
  empty_ &= entry.name.starts_with("Module.loss.") || (optimizer && !wanted);  // every dump has these entries, so they do not count
  pending_.push_back(std::move(entry));
  if (!leaves_.has_pending()) write_pending();
}

void DumpRecorder::write_pending() {
  for (const auto& e : pending_) folder_->add(e);
  pending_.clear();
}

void DumpRecorder::close() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  leaves_.resolve();
  write_pending();
  folder_->flush();
}

}  // namespace npu_train::detail
