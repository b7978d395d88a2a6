#include "npu_train/nn/op_observer.hpp"

#include <algorithm>

#include "nn/storage.hpp"

namespace npu_train {
namespace {

thread_local OpObserver* current = nullptr;

using Values = c10::ArrayRef<const c10::IValue>;

at::Tensor tensor(Values values, size_t i) { return i < values.size() && values[i].isTensor() ? values[i].toTensor() : at::Tensor(); }

int64_t convolution_flops(Values in, const at::Tensor& out, bool transposed) {
  const at::Tensor x = tensor(in, 0), weight = tensor(in, 1);
  if (!x.defined() || !weight.defined() || weight.size(0) == 0) return 0;
  return 2 * (transposed ? x.numel() : out.numel()) * (weight.numel() / weight.size(0));
}

// Sums over the last dimension of input `i`.
int64_t product_flops(Values in, const at::Tensor& out, size_t i) {
  const at::Tensor x = tensor(in, i);
  return x.defined() && x.dim() > 0 ? 2 * out.numel() * x.size(-1) : 0;
}

// q k^T and p v for q [..., L, E], k [..., S, E], v [..., S, Ev].
int64_t attention_flops(Values in) {
  const at::Tensor q = tensor(in, 0), k = tensor(in, 1), v = tensor(in, 2);
  if (!q.defined() || !k.defined() || !v.defined() || q.dim() < 2 || q.size(-1) == 0) return 0;
  return 2 * q.numel() * k.size(-2) + 2 * (q.numel() / q.size(-1)) * k.size(-2) * v.size(-1);
}

// 0 for operations that are not counted; `known` tells them from those that cost nothing on empty tensors.
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

bool counted_whole(const std::string& op) {
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

std::string plain_name(const at::RecordFunction& fn) {
  const std::string name = fn.name();
  const auto colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

using detail::storage_of;

}  // namespace

struct OpObserver::Context : at::ObserverContext {
  bool outermost = false;
  bool whole = false;
  std::vector<c10::IValue> inputs;  // of an outermost one: the dispatcher's own are gone when it ends
};

OpObserver::OpObserver(const ParameterSet& parameters, std::function<void(const SeenOp&)> on_op, bool every)
    : on_op_(std::move(on_op)), every_(every), before_(current) {
  for (const auto& p : parameters) parameters_[storage_of(p.value)] = p.name;
  current = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&OpObserver::on_start, &OpObserver::on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

OpObserver::~OpObserver() {
  at::removeCallback(handle_);
  current = before_;
}

std::unique_ptr<at::ObserverContext> OpObserver::on_start(const at::RecordFunction& fn) {
  auto context = std::make_unique<Context>();
  if (current == nullptr) return context;
  context->outermost = current->inside_ == 0;
  context->whole = context->outermost && (current->every_ || counted_whole(plain_name(fn)));
  if (context->whole) ++current->inside_;
  if (context->outermost) context->inputs.assign(fn.inputs().begin(), fn.inputs().end());
  return context;
}

void OpObserver::on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  auto* own = static_cast<Context*>(context);
  if (current == nullptr || own == nullptr) return;
  if (own->whole) --current->inside_;
  if (!own->outermost) return;
  try {
    current->report(fn, own->inputs);
  } catch (...) {
    current->failed_ = true;
  }
}

void OpObserver::report(const at::RecordFunction& fn, const std::vector<c10::IValue>& seen) {
  const Values inputs(seen.data(), seen.size());
  const auto& outputs = fn.outputs();
  if (outputs.empty() || !outputs[0].isTensor() || !outputs[0].toTensor().defined()) return;
  const at::Tensor out = outputs[0].toTensor();
  SeenOp op{.name = plain_name(fn), .parameter = {}, .inputs = seen, .output = out, .flops = 0};
  bool known = false;
  op.flops = flops_of(op.name, inputs, out, known);
  for (size_t i = 0; i < inputs.size() && op.parameter.empty(); ++i) {
    const at::Tensor t = tensor(inputs, i);
    if (!t.defined()) continue;
    // A view of a parameter, as t(weight) is, is not yet a use; its storage is found again in the product.
    const auto found = parameters_.find(storage_of(t));
    if (found != parameters_.end() && storage_of(out) != storage_of(t)) op.parameter = found->second;
  }
  if (!known && op.parameter.empty() && !every_) return;
  const at::RecordFunctionGuard unseen(/*is_enabled=*/false);
  on_op_(op);
}

}  // namespace npu_train
