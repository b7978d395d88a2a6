#include "npu_train/trace/op_observer.hpp"

#include <algorithm>
#include <string_view>

#include "npu_train/base/storage.hpp"
#include "npu_train/trace/operator_values.hpp"
#include "npu_train/trace/recorded_op.hpp"

namespace npu_train {
namespace {

using Values = c10::ArrayRef<const c10::IValue>;

at::Tensor tensor(Values values, size_t i) { return i < values.size() && values[i].isTensor() ? values[i].toTensor() : at::Tensor(); }

int64_t convolution_flops(Values in, const at::Tensor& out, bool transposed) {
  const at::Tensor x = tensor(in, 0), weight = tensor(in, 1);
  if (!x.defined() || !weight.defined() || weight.size(0) == 0) return 0;
  return 2 * (transposed ? x.numel() : out.numel()) * (weight.numel() / weight.size(0));
}

// Returns the FLOPs of a product that sums over the last dimension of input `i`.
int64_t product_flops(Values in, const at::Tensor& out, size_t i) {
  const at::Tensor x = tensor(in, i);
  return x.defined() && x.dim() > 0 ? 2 * out.numel() * x.size(-1) : 0;
}

// Counts the FLOPs of q k^T and p v for q [..., L, E], k [..., S, E], v [..., S, Ev].
int64_t attention_flops(Values in) {
  const at::Tensor q = tensor(in, 0), k = tensor(in, 1), v = tensor(in, 2);
  if (!q.defined() || !k.defined() || !v.defined() || q.dim() < 2 || q.size(-1) == 0) return 0;
  return 2 * q.numel() * k.size(-2) + 2 * (q.numel() / q.size(-1)) * k.size(-2) * v.size(-1);
}

// Returns 0 for operations that are not counted. `known` distinguishes these from counted operations on empty tensors.
int64_t flops_of(const std::string& op, Values in, const at::Tensor& out, bool& known) {
  known = true;
  if (op == "conv1d" || op == "conv2d" || op == "conv3d") return convolution_flops(in, out, false);
  if (op == "conv_transpose1d" || op == "conv_transpose2d" || op == "conv_transpose3d") return convolution_flops(in, out, true);
  if (op == "convolution") return convolution_flops(in, out, in.size() > 6 && in[6].isBool() && in[6].toBool());
  if (op == "linear" || op == "matmul" || op == "mm" || op == "bmm" || op == "mv") return product_flops(in, out, 0);
  if (op == "addmm" || op == "baddbmm" || op == "addmv") return product_flops(in, out, 1);
  if (op == "scaled_dot_product_attention") return attention_flops(in);
  known = false;
  return 0;
}

bool casts(const std::string& op) { return op == "to" || op == "_to_copy" || op == "type_as"; }

bool counted_whole(const std::string& op) {
  if (casts(op)) return true;
  static const std::vector<std::string> names = {"conv1d",
                                                 "conv2d",
                                                 "conv3d",
                                                 "conv_transpose1d",
                                                 "conv_transpose2d",
                                                 "conv_transpose3d",
                                                 "linear",
                                                 "matmul",
                                                 "mm",
                                                 "bmm",
                                                 "mv",
                                                 "addmm",
                                                 "baddbmm",
                                                 "addmv",
                                                 "convolution",
                                                 "scaled_dot_product_attention",
                                                 "batch_norm",
                                                 "batch_norm_act",
                                                 "layer_norm",
                                                 "group_norm",
                                                 "instance_norm",
                                                 "embedding"};
  return std::find(names.begin(), names.end(), op) != names.end();
}

// Splits "aten::conv2d" into "aten" and "conv2d".
std::pair<std::string, std::string> split_name(const at::RecordFunction& fn) {
  const std::string name = fn.name();
  const auto colons = name.rfind("::");
  if (colons == std::string::npos) return {"", name};
  return {name.substr(0, colons), name.substr(colons + 2)};
}

// Returns the name that reports use: "conv2d", "add.Tensor", "npu_train::batch_norm_act".
std::string full_name(const at::RecordFunction& fn) {
  const auto [library, name] = split_name(fn);
  const auto operator_name = fn.operator_name();
  const bool overloaded = operator_name && !operator_name->overload_name.empty();
  return (library.empty() || library == "aten" ? "" : library + "::") + name + (overloaded ? "." + operator_name->overload_name : "");
}

class FunctionListener final : public OpListener {
 public:
  explicit FunctionListener(std::function<void(const SeenOp&)> on_op) : on_op_(std::move(on_op)) {}
  void op_ended(const SeenOp& op) override { on_op_(op); }

 private:
  std::function<void(const SeenOp&)> on_op_;
};

using detail::arguments_of, detail::results_of, detail::tensors_of;

}  // namespace

bool costs_flops(const std::string& name) {
  bool known = false;
  flops_of(name, {}, {}, known);
  return known;
}

bool is_cast(const SeenOp& op) { return casts(op.name); }

// Refers to the observer of a thread. libtorch passes this link, together with the callbacks, to the threads in which autograd runs
// backward passes of devices.
struct OpObserver::Link final : c10::DebugInfoBase {
  explicit Link(OpObserver* o) : observer(o) {}
  static OpObserver* current() {
    auto* link = static_cast<Link*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::INFERENCE_CONTEXT));
    return link != nullptr ? link->observer : nullptr;
  }
  OpObserver* observer;  // nullptr after its destruction
};

struct OpObserver::Context : at::ObserverContext {
  bool outermost = false;
  bool whole = false;
  bool inside = false;  // the operator has an entry in inside_
  bool layer = false;
  bool names_value = false;
  std::vector<c10::IValue> inputs;  // copy of the outermost operator's inputs, because the dispatcher's are gone when the operator ends
};

OpObserver::OpObserver(const ParameterSet& parameters, OpListener& listener, bool every)
    : listener_(listener), every_(every), link_(std::make_shared<Link>(this)), guard_(c10::DebugInfoKind::INFERENCE_CONTEXT, link_) {
  for (const auto& p : parameters) {
    watched_[storage_of(p.value)] = {p.name, true};
    watched_[p.value.unsafeGetTensorImpl()] = {p.name, true};  // by the tensor, too: a sharded parameter gets other memory for each pass
  }
  watched_.erase(nullptr);
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&OpObserver::on_start, &OpObserver::on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
}

OpObserver::OpObserver(const ParameterSet& parameters, std::function<void(const SeenOp&)> on_op, bool every)
    : OpObserver(parameters, *new FunctionListener(std::move(on_op)), every) {
  own_.reset(&listener_);
}

OpObserver::~OpObserver() {
  at::removeCallback(handle_);
  link_->observer = nullptr;
}

void OpObserver::watch(const std::string& name, const at::Tensor& value) {
  if (const auto* storage = storage_of(value); storage != nullptr) watched_.emplace(storage, Watched{name, false});
}

std::unique_ptr<at::ObserverContext> OpObserver::on_start(const at::RecordFunction& fn) {
  auto context = std::make_unique<Context>();
  auto* current = Link::current();
  if (current == nullptr) return context;
  const std::lock_guard lock(current->mutex_);
  try {
    current->begin(fn, *context);
  } catch (...) {
    if (current->error_ == nullptr) current->error_ = std::current_exception();
  }
  return context;
}

void OpObserver::on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  const auto* own = static_cast<Context*>(context);
  auto* current = Link::current();
  if (current == nullptr || own == nullptr) return;
  const std::lock_guard lock(current->mutex_);
  try {
    current->end(fn, *own);
  } catch (...) {
    if (current->error_ == nullptr) current->error_ = std::current_exception();
  }
}

void OpObserver::begin(const at::RecordFunction& fn, Context& context) {
  if (std::string_view(fn.name()).starts_with("autograd::engine::") && listener_.sees_all()) return;  // such a range only wraps operators
  auto& inside = inside_[std::this_thread::get_id()];
  context.outermost = inside.empty();
  if (!context.outermost) {
    if (!listener_.sees_parts() || fn.scope() == at::RecordScope::USER_SCOPE) return;
    context.inside = true;
    inside.push_back(full_name(fn));
    listener_.part_seen(inside[inside.size() - 2], inside.back());
    return;
  }
  const auto arguments = arguments_of(fn);
  context.inputs.assign(arguments.begin(), arguments.end());
  context.layer = fn.scope() == at::RecordScope::USER_SCOPE;
  if (context.layer) {
    std::string_view name = fn.name();
    context.names_value = name.ends_with(detail::kNamedValue);
    if (context.names_value) name.remove_suffix(detail::kNamedValue.size());
    scopes_.push_back((scopes_.empty() ? "" : scopes_.back() + ".") + std::string(name));
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    listener_.layer_begins({.path = scopes_.back(), .inputs = tensors_of(arguments), .outputs = {}, .names_value = context.names_value});
    return;
  }
  context.whole = every_ || counted_whole(split_name(fn).second);
  if (!context.whole) return;
  context.inside = true;
  inside.push_back(full_name(fn));
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  listener_.op_begins(describe(fn, context.inputs));
}

void OpObserver::end(const at::RecordFunction& fn, const Context& context) {
  if (context.inside) inside_[std::this_thread::get_id()].pop_back();
  if (context.layer) {
    const SeenLayer layer{.path = std::move(scopes_.back()),
                          .inputs = tensors_of(context.inputs),
                          .outputs = tensors_of(results_of(fn)),
                          .names_value = context.names_value};
    scopes_.pop_back();
    const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
    listener_.layer_ended(layer);
  } else if (context.outermost) {
    report(fn, context.inputs);
  }
}

SeenOp OpObserver::describe(const at::RecordFunction& fn, const std::vector<c10::IValue>& inputs) const {
  auto [library, name] = split_name(fn);
  return {.name = std::move(name),
          .parameter = {},
          .inputs = inputs,
          .output = {},
          .flops = 0,
          .library = std::move(library),
          .scope = scopes_.empty() ? std::string() : scopes_.back(),
          .outputs = {},
          .tensors = {},
          .overload = fn.operator_name() ? fn.operator_name()->overload_name : std::string()};
}

const OpObserver::Watched* OpObserver::watched_in(const at::Tensor& input) const {
  auto found = watched_.find(input.unsafeGetTensorImpl());
  if (found == watched_.end()) found = watched_.find(storage_of(input));
  return found != watched_.end() ? &found->second : nullptr;
}

// Records a cast of a parameter, for example by autocast, as the parameter itself.
bool OpObserver::follows_cast(const SeenOp& op) {
  if (!is_cast(op) || op.tensors.empty()) return false;
  const auto* from = watched_in(op.tensors[0].value);
  if (from == nullptr || storage_of(op.output) == nullptr) return false;
  watched_.insert_or_assign(storage_of(op.output), Watched(*from));
  casts_.push_back(op.output.storage().getWeakStorageImpl());
  return true;
}

void OpObserver::report(const at::RecordFunction& fn, const std::vector<c10::IValue>& seen) {
  const Values inputs(seen.data(), seen.size());
  SeenOp op = describe(fn, seen);
  op.outputs = tensors_of(results_of(fn));
  bool known = false;
  if (!op.outputs.empty()) {
    op.output = op.outputs.front();
    op.flops = flops_of(op.name, inputs, op.output, known);
  } else if (!listener_.sees_all() || std::uncaught_exceptions() > 0) {
    return;  // not reported, like an operator that ended with an exception
  }
  for (auto& input : tensors_of(seen)) {
    const auto* watched = watched_in(input);
    op.tensors.push_back({.value = std::move(input), .known = watched != nullptr ? watched->name : std::string()});
  }
  if (!follows_cast(op))
    for (const auto& input : op.tensors) {
      // Creating a view of a parameter, such as t(weight), does not count as a use. The product that reads the view does: the view has the
      // parameter's storage.
      const auto* watched = op.output.defined() && storage_of(input.value) == storage_of(op.output) ? nullptr : watched_in(input.value);
      if (watched == nullptr || !watched->is_parameter) continue;
      op.parameter = watched->name;
      break;
    }
  if (!known && op.parameter.empty() && !every_) return;
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  listener_.op_ended(op);
}

}  // namespace npu_train
