#include "npu_train/trace/op_graph.hpp"

#include <ATen/record_function.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "npu_train/base/storage.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/trace/op_mode.hpp"
#include "npu_train/trace/operator_values.hpp"

namespace npu_train::detail {
namespace {

// In its scope, path() returns the path of this thread's current declared layers.
class LayerPath {
 public:
  LayerPath() : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::USER_SCOPE}))) {}
  ~LayerPath() {
    at::removeCallback(handle_);
    names.clear();
  }
  LayerPath(const LayerPath&) = delete;
  LayerPath& operator=(const LayerPath&) = delete;

  static std::string path() {
    std::string out;
    for (const auto& name : names) out += (out.empty() ? "" : ".") + name;
    return out;
  }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& fn) {
    names.emplace_back(fn.name());
    return nullptr;
  }
  static void end(const at::RecordFunction&, at::ObserverContext*) {
    if (!names.empty()) names.pop_back();
  }

  static thread_local std::vector<std::string> names;
  at::CallbackHandle handle_;
};
thread_local std::vector<std::string> LayerPath::names;

// Runs the kernel of a composite operator with the mode on, so that the mode receives the operators that the kernel calls.
void call_parts(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto count = static_cast<ptrdiff_t>(op.schema().arguments().size());
  c10::DispatchKeySet keys;
  for (const auto& t : tensors_of(std::vector<c10::IValue>(stack.end() - count, stack.end()))) keys = keys | t.key_set();
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, kOpModeKey);
  op.redispatchBoxed(((keys | local.included_) - local.excluded_) & below, &stack);
}

}  // namespace

std::string GraphOp::name() const {
  auto n = op.schema().name().substr(op.schema().name().find("::") + 2);
  if (n.size() > 1 && n.back() == '_') n.pop_back();
  return n;
}

bool GraphOp::gives_view_of(const void* storage) const { return gives_one() && storage_of(outputs[0].toTensor()) == storage; }

class OpGraph::Recorder final : public OpMode {
 public:
  Recorder(OpGraph& graph, const ParameterSet& parameters, const std::vector<std::pair<std::string, at::Tensor>>& buffers,
           const SplitRule& split)
      : graph_(graph), split_(split) {
    for (const auto& p : parameters) named_.emplace(storage_of(p.value), std::pair(p.value, p.name));
    for (const auto& [name, tensor] : buffers) named_.emplace(storage_of(tensor), std::pair(tensor, name));
  }

  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) override {
    if (split_ && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) && split_(op)) return call_parts(op, stack);
    const auto count = static_cast<ptrdiff_t>(op.schema().arguments().size());
    GraphOp made{.op = op, .args = {stack.end() - count, stack.end()}, .outputs = {}, .reads = {}, .gives = {}, .layer = LayerPath::path()};
    const size_t index = graph_.ops_.size();
    for (const auto& t : tensors_of(made.args)) {
      made.reads.push_back(value_of(t));
      graph_.values_[made.reads.back()].readers.push_back(index);
    }
    call_below(op, stack);
    made.outputs.assign(stack.end() - static_cast<ptrdiff_t>(op.schema().returns().size()), stack.end());
    for (const auto& t : tensors_of(made.outputs)) made.gives.push_back(fresh_value(t, {.given_by = static_cast<ptrdiff_t>(index)}));
    graph_.ops_.push_back(std::move(made));
  }

  void returned(const std::string& name, const at::Tensor& t) {
    check(t.defined(), ErrorKind::Usage, "OpGraph", "the result '", name,
          "' of the forward is an undefined tensor; results must have values");
    graph_.results_.push_back({name, t, value_of(t)});
  }

 private:
  size_t fresh_value(const at::Tensor& t, GraphValue value) {
    value.storage = storage_of(t);
    graph_.values_.push_back(std::move(value));
    by_storage_[storage_of(t)].emplace_back(t, graph_.values_.size() - 1);
    return current_[t.unsafeGetTensorImpl()] = graph_.values_.size() - 1;
  }
  // Returns the value of a tensor. torch::zeros and Tensor::data() return tensors that share the elements of another tensor, and no
  // operator has produced them. They have the value of that other tensor.
  size_t value_of(const at::Tensor& t) {
    const auto found = current_.find(t.unsafeGetTensorImpl());
    if (found != current_.end()) return found->second;
    const auto& same_storage = by_storage_[storage_of(t)];
    const auto is_it = [&](const auto& entry) { return same_elements(entry.first, t); };
    const auto known = std::find_if(same_storage.rbegin(), same_storage.rend(), is_it);
    if (known != same_storage.rend()) return current_[t.unsafeGetTensorImpl()] = known->second;
    return fresh_value(t, {.name = name_of(t)});
  }
  // Returns the name of a parameter or buffer; "" for a tensor that is neither.
  std::string name_of(const at::Tensor& t) const {
    const auto [begin, end] = named_.equal_range(storage_of(t));
    const auto is_it = [&](const auto& entry) { return entry.second.first.is_same(t) || same_elements(entry.second.first, t); };
    const auto found = std::find_if(begin, end, is_it);
    return found != end ? found->second.second : "";
  }

  OpGraph& graph_;
  const SplitRule& split_;
  std::multimap<const void*, std::pair<at::Tensor, std::string>> named_;  // named tensors by storage; a flat buffer has several, in order
  std::unordered_map<const c10::TensorImpl*, size_t> current_;            // current value of each tensor
  std::unordered_map<const void*, std::vector<std::pair<at::Tensor, size_t>>> by_storage_;  // in the order of the values
};

OpGraph OpGraph::record(const std::function<Outputs()>& forward, const ParameterSet& parameters,
                        const std::vector<std::pair<std::string, at::Tensor>>& buffers, const SplitRule& split) {
  OpGraph graph;
  Recorder recorder(graph, parameters, buffers, split);
  const LayerPath layers;
  const OpModeGuard recorded(recorder);
  const Outputs outputs = forward();
  for (const auto& [name, tensor] : outputs.fields()) recorder.returned(name, tensor);
  return graph;
}

bool OpGraph::is_result(size_t value) const {
  return std::any_of(results_.begin(), results_.end(), [&](const GraphResult& result) { return result.value == value; });
}

ptrdiff_t OpGraph::only_reader(size_t op) const {
  if (!ops_[op].gives_one()) return -1;
  const size_t given = ops_[op].gives[0];
  const auto& readers = values_[given].readers;
  return readers.size() == 1 && !is_result(given) ? static_cast<ptrdiff_t>(readers[0]) : -1;
}

int OpGraph::position(size_t reader, size_t giver) const {
  if (!ops_[giver].gives_one()) return -1;
  const auto& args = ops_[reader].args;
  const auto* impl = ops_[giver].outputs[0].toTensor().unsafeGetTensorImpl();
  for (size_t i = 0; i < args.size(); ++i)
    if (args[i].isTensor() && args[i].toTensor().unsafeGetTensorImpl() == impl) return static_cast<int>(i);
  return -1;
}

int64_t OpGraph::readers_of(const void* storage) const {
  return std::count_if(ops_.begin(), ops_.end(), [&](const GraphOp& op) {
    const auto reads = [&](size_t value) { return values_[value].storage == storage; };
    return std::any_of(op.reads.begin(), op.reads.end(), reads) && !op.gives_view_of(storage);
  });
}

}  // namespace npu_train::detail
