// The part of DumpRecorder that records gradients, the loss and the optimizer.
#include <ATen/ops/add.h>

#include <unordered_map>
#include <utility>

#include "npu_train/core/text.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "tools/align/dump_names.hpp"
#include "tools/align/dump_recorder.hpp"

namespace npu_train::detail {

namespace {

// Adds the options momentum, weight_decay, betas, eps and so on, which must be equal in two runs. Omits the learning rate, whose current
// value is recorded separately.
void add_options(const ConfigNode& options, DumpNode& to) {
  const auto leaf = [](const std::string& text) {
    const auto number = decimal_number(text);
    return number ? LeafMaker::number(*number) : LeafMaker::text(text);
  };
  for (const auto& member : options.members()) {
    if (member.key == "lr") continue;
    if (member.value.is_scalar()) to.set(member.key, leaf(member.value.scalar()));
    if (!member.value.is_list()) continue;
    auto list = DumpNode::list();
    for (const auto& item : member.value.items())
      if (item.is_scalar()) list.add(leaf(item.scalar()));
    to.set(member.key, std::move(list));
  }
}

}  // namespace

size_t DumpRecorder::add_backward(const std::string& name, const std::string& parent, size_t inputs) {
  const size_t index = backwards_.size();
  auto& backward = backwards_.emplace_back();
  backward.entry.name = name;
  if (const auto at = parent.rfind(".forward."); at != std::string::npos)
    backward.entry.parent = parent.substr(0, at) + ".backward." + parent.substr(at + std::string_view(".forward.").size());
  backward.of_inputs.resize(inputs);
  backward.shares.resize(inputs);
  return index;
}

void DumpRecorder::watch_outputs(size_t index, const std::vector<at::Tensor>& outputs, CallGraph& graph) {
  auto& backward = backwards_[index];
  if (backward.generation++ > 0) backward.missing -= backward.watched_outputs;
  backward.of_outputs.assign(outputs.size(), {});
  backward.watched_outputs = 0;
  if (filter_.side("input"))
    for (size_t i = 0; i < outputs.size(); ++i) backward.watched_outputs += watch(outputs[i], index, i);
  backward.missing += backward.watched_outputs;
  if (!filter_.side("output")) return;  // the outputs of a backward pass are the gradients of the inputs
  graph.follow(outputs, [&](size_t position) -> CallGraph::Listener {
    backward.missing += backward.shares[position].edges++ == 0;
    return [weak = weak_from_this(), index, position](const at::Tensor& gradient) {
      if (const auto self = weak.lock()) self->share_came(index, position, gradient);
    };
  });
}

// Observes the gradient of `value`, unless it is a leaf: the hook of a leaf would never be removed, and parameters have separate entries.
bool DumpRecorder::watch(const at::Tensor& value, size_t index, size_t position) {
  if (!value.defined() || !value.requires_grad() || value.is_leaf()) return false;
  value.register_hook([weak = weak_from_this(), index, position, generation = backwards_[index].generation](const at::Tensor& gradient) {
    if (const auto self = weak.lock()) self->gradient_came(index, position, generation, gradient);
  });
  return true;
}

void DumpRecorder::gradient_came(size_t index, size_t position, int generation, const at::Tensor& gradient) {
  const std::lock_guard lock(mutex_);
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  auto& backward = backwards_[index];
  if (closed_ || generation != backward.generation) return;
  backward.of_outputs[position] = gradient_node(backward, ".input.", position, gradient);
  note_arrival(index);
}

void DumpRecorder::share_came(size_t index, size_t position, const at::Tensor& gradient) {
  const std::lock_guard lock(mutex_);
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  auto& backward = backwards_[index];
  auto& share = backward.shares[position];
  if (closed_ || share.came == share.edges) return;  // this is a second backward pass
  if (gradient.defined()) share.sum = share.sum.defined() ? at::add(share.sum, gradient) : gradient;
  if (++share.came < share.edges) return note_arrival(index, /*whole=*/false);
  backward.of_inputs[position] = gradient_node(backward, ".output.", position, std::exchange(share.sum, {}));
  note_arrival(index);
}

DumpNode DumpRecorder::gradient_node(Backward& backward, const std::string& side, size_t position, const at::Tensor& gradient) {
  close_call();  // the forward pass is over
  const auto name = backward.entry.name + side + std::to_string(position);
  auto node = leaves_.tensor(gradient, name);
  if (options_.task != "overflow_check" || !leaves_.overflowed(node)) return node;
  backward.overflowed = true;
  return leaves_.tensor(gradient, name, /*keep=*/true);
}

void DumpRecorder::note_arrival(size_t index, bool whole) {
  auto& backward = backwards_[index];
  if (!std::exchange(backward.came, true)) order_.push_back(index);
  if (!whole) return;
  if (backward.missing > 0) --backward.missing;
  end_backward(false);
}

void DumpRecorder::end_backward(bool all) {
  const std::lock_guard lock(mutex_);
  for (; written_ < order_.size(); ++written_) {
    auto& backward = backwards_[order_[written_]];
    if (!all && backward.missing > 0) break;
    write_backward(backward);
  }
  if (all) folder_->flush();
}

void DumpRecorder::write_backward(Backward& backward) {
  for (size_t i = 0; i < backward.shares.size(); ++i)  // adds shares of which some edges received no gradient
    if (auto& sum = backward.shares[i].sum; sum.defined())
      backward.of_inputs[i] = gradient_node(backward, ".output.", i, std::exchange(sum, {}));
  if (options_.task == "overflow_check" && !backward.overflowed) return;
  const auto list = [](std::vector<DumpNode>& nodes) {
    auto out = DumpNode::list();
    for (auto& node : nodes) out.add(std::move(node));
    return out;
  };
  if (filter_.side("input")) backward.entry.content.set("input", list(backward.of_outputs));
  if (filter_.side("output")) backward.entry.content.set("output", list(backward.of_inputs));
  emit(std::move(backward.entry));
}

void DumpRecorder::loss(const at::Tensor& loss) {
  const std::lock_guard lock(mutex_);
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  close_call();
  forward_over_ = true;
  if (filter_.named_values() || !filter_.direction("forward") || !filter_.side("output")) return;
  DumpEntry entry;
  entry.name = "Module.loss.Loss.forward." + std::to_string(next_number("Module.loss.Loss"));
  entry.content.set("input_args", DumpNode::list());
  entry.content.set("input_kwargs", DumpNode::map());
  entry.content.set("output", tensors({loss.detach()}, entry.name + ".output"));
  if (interesting(entry.content.items.back().second)) emit(std::move(entry));
}

void DumpRecorder::parameter_gradients(const ParameterSet& parameters) {
  const std::lock_guard lock(mutex_);
  if (filter_.named_values() || !filter_.extra("parameters_grad")) return;
  leaves_.forget();
  std::vector<DumpEntry> entries;
  std::unordered_map<std::string, size_t> by_layer;
  for (const auto& p : parameters) {
    const auto layer = layer_of(p.name);  // complete path, as in msprobe; a parameter of the model itself is a separate layer
    const auto base = base_of(layer.empty() ? p.name : layer, "layer");
    const auto wanted = [&](const std::string& name) { return options_.scope.empty() ? filter_.has(name) : wanted_.count(name) != 0; };
    if (!wanted(base) && !wanted(base_of(owner_of(p.name), "layer"))) continue;
    const auto [found, is_new] = by_layer.emplace(base, entries.size());
    if (is_new) {
      const auto prefix = base + ".parameters_grad.";
      entries.emplace_back().name = prefix + std::to_string(next_number(prefix));
    }
    auto* entry = &entries[found->second];
    const auto key = p.name.substr(p.name.rfind('.') + 1);
    auto values = DumpNode::list();
    values.add(leaves_.tensor(p.value.grad(), entry->name + "." + key));
    entry->content.set(key, std::move(values));
  }
  for (auto& entry : entries)
    if (interesting(entry.content)) emit(std::move(entry));
  folder_->flush();
}

void DumpRecorder::optimizer(const Optimizer& optimizer, const ParameterSet& parameters, double loss_scale) {
  const std::lock_guard lock(mutex_);
  if (filter_.named_values() || !filter_.extra("optimizer") || options_.task == "overflow_check") return;
  leaves_.forget();
  DumpEntry entry;
  entry.name = "Module.optimizer." + class_of_operator(optimizer.name()) + ".forward.0";
  auto arguments = DumpNode::map();
  arguments.set("lr", LeafMaker::number(optimizer.lr()));
  arguments.set("loss_scale", LeafMaker::number(loss_scale));
  add_options(optimizer.options(), arguments);
  auto weights = DumpNode::map(), state = DumpNode::map();
  for (const auto& p : parameters)
    if (filter_.has(base_of(owner_of(p.name), "layer"))) weights.set(p.name, leaves_.tensor(p.value, entry.name + ".parameters." + p.name));
  for (const auto& [name, tensor] : optimizer.state().tensors)
    if (filter_.has(base_of(owner_of(name.substr(name.find('/') + 1)), "layer")))
      state.set(name, leaves_.tensor(tensor, entry.name + ".output." + name));
  entry.content.set("input_args", DumpNode::list());
  entry.content.set("input_kwargs", std::move(arguments));
  entry.content.set("output", std::move(state));
  entry.content.set("parameters", std::move(weights));
  emit(std::move(entry));
}

}  // namespace npu_train::detail
