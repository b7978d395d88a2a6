#include "npu_train/tools/analyze/operator_inventory.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "npu_train/core/clock.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/operator_support.hpp"
#include "npu_train/trace/operator_values.hpp"

namespace npu_train {
namespace {

constexpr size_t kMost = 6;  // shapes and layers kept per operator

std::string shapes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> out;
  for (size_t i = 0; i < tensors.size() && i < 4; ++i) out.push_back(str_cat(tensors[i].sizes()));
  return join(out, " x ") + (tensors.size() > 4 ? " ..." : "");
}

void keep(std::vector<std::string>& list, const std::string& text, int64_t* distinct = nullptr) {
  if (text.empty() || std::find(list.begin(), list.end(), text) != list.end()) return;
  if (distinct != nullptr) ++*distinct;
  if (list.size() < kMost) list.push_back(text);
}

template <size_t N>
bool one_of(const std::string& name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_mask(const SeenOp& op) {
  if (op.name != "index" && !op.name.starts_with("index_put")) return false;
  const auto tensors = detail::tensors_of(op.inputs);
  return std::any_of(tensors.begin() + (tensors.empty() ? 0 : 1), tensors.end(),
                     [](const at::Tensor& t) { return t.scalar_type() == at::kBool; });
}

bool is_dynamic(const SeenOp& op) {
  static constexpr std::array<std::string_view, 10> kNames = {"nonzero", "nonzero_numpy", "argwhere",   "masked_select",      "unique",
                                                              "_unique", "_unique2",      "unique_dim", "unique_consecutive", "bincount"};
  return one_of(op.name, kNames) || has_mask(op) || (op.name == "repeat_interleave" && op.overload.ends_with("Tensor"));
}

bool reads_on_host(const SeenOp& op) {
  static constexpr std::array<std::string_view, 6> kNames = {"item",    "_local_scalar_dense", "is_nonzero", "equal",
                                                             "nonzero", "masked_select"};
  if (one_of(op.name, kNames) || has_mask(op)) return true;
  const auto inputs = detail::tensors_of(op.inputs);
  return !inputs.empty() && op.output.defined() && !inputs[0].is_cpu() && op.output.is_cpu();
}

// Whether autocast may choose the tensor's dtype.
bool is_float(const at::Tensor& t) { return t.is_floating_point(); }

// Whether autocast may cast the inputs. It casts for operators with an autocast kernel, except cat, stack and index_copy, whose inputs are
// only promoted.
bool autocast_may_cast(const SeenOp& op, c10::DeviceType device) {
  static constexpr std::array<std::string_view, 5> kOthers = {"to", "_to_copy", "cat", "stack", "index_copy"};
  if (one_of(op.name, kOthers)) return false;
  const auto found = c10::Dispatcher::singleton().findSchema({op.library + "::" + op.name, op.overload});
  return found && found->hasKernelForDispatchKey(at::autocast::get_autocast_dispatch_key_from_device_type(device));
}

std::string autocast_of(const SeenOp& op, const std::vector<at::Tensor>& inputs) {
  if (inputs.empty() || !op.output.defined()) return "";
  const auto device = inputs[0].device().type();
  if (!at::autocast::is_autocast_enabled(device)) return "";
  const auto given = op.output.scalar_type();
  const bool changed = is_float(op.output) && std::any_of(inputs.begin(), inputs.end(),
                                                          [&](const at::Tensor& t) { return is_float(t) && t.scalar_type() != given; });
  return changed && autocast_may_cast(op, device) ? "to " + listed_dtype(c10::toString(given)) : "as given";
}

// Whether the operator computes more than one number. Views, casts, and counters such as BatchNorm's do not.
bool does_work(const SeenOp& op, const std::vector<at::Tensor>& inputs) {
  if (op.name == "to" || op.name == "_to_copy") return false;
  if (std::all_of(inputs.begin(), inputs.end(), [](const at::Tensor& t) { return t.numel() <= 1; })) return false;
  const bool view = !op.name.ends_with('_') && op.output.defined() && op.output.has_storage() && inputs[0].has_storage() &&
                    op.output.is_alias_of(inputs[0]);
  return !view;
}

}  // namespace

std::string OperatorUse::full_name() const {
  return (library == "aten" || library.empty() ? "" : library + "::") + name + (overload.empty() ? "" : "." + overload);
}

std::string OperatorUse::computed_in() const { return autocast.starts_with("to ") ? autocast.substr(3) : dtype; }

OperatorInventory::OperatorInventory(ParameterSet parameters) : parameters_(std::move(parameters)) {}
OperatorInventory::~OperatorInventory() = default;

void OperatorInventory::phase_begin(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) {
  if (phase < Phase::Forward || phase > Phase::Optimizer) return;
  phase_ = phase_name(phase);
  observer_.reset(new OpObserver(parameters_, *this, /*every=*/true));  // make_unique has no access to the private base class
}

void OperatorInventory::phase_end(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) {
  if (!observer_ || phase_ != phase_name(phase)) return;
  const auto error = observer_->error();
  observer_.reset();
  if (error != nullptr) std::rethrow_exception(error);
}

void OperatorInventory::phase_error(Phase /*phase*/, int64_t /*attempt*/, int /*micro_batch*/, std::exception_ptr /*error*/) {
  observer_.reset();
}

void OperatorInventory::op_begins(const SeenOp& /*op*/) { began_ = SteadyClock().now(); }

void OperatorInventory::op_ended(const SeenOp& op) {
  const double took = SteadyClock().now() - began_;
  const auto inputs = detail::tensors_of(op.inputs);
  OperatorUse one{.library = op.library,
                  .name = op.name,
                  .overload = op.overload,
                  .phase = phase_,
                  .dtype = {},
                  .autocast = {},
                  .shapes = {},
                  .layers = {}};
  const auto& first = inputs.empty() ? op.output : inputs[0];
  if (first.defined()) one.dtype = listed_dtype(c10::toString(first.scalar_type()));
  auto& use = uses_.try_emplace(Key{one.full_name(), phase_, one.dtype}, one).first->second;
  ++use.calls;
  use.seconds += took;
  use.flops += op.flops;
  keep(use.shapes, shapes_of(inputs), &use.distinct_shapes);
  if (const auto dot = op.parameter.rfind('.'); dot != std::string::npos) keep(use.layers, op.parameter.substr(0, dot));
  use.dynamic_shape |= is_dynamic(op);
  use.host_read |= reads_on_host(op);
  use.works |= does_work(op, inputs);
  if (const auto decision = autocast_of(op, inputs); use.autocast.empty() || use.autocast == "as given") use.autocast = decision;
  note_heads(op);
  note_classes(op);
}

void OperatorInventory::note_heads(const SeenOp& op) {
  if (op.name.find("scaled_dot_product") == std::string::npos || op.inputs.empty() || !op.inputs[0].isTensor()) return;
  const at::Tensor q = op.inputs[0].toTensor();
  if (q.dim() < 3) return;
  const std::pair heads{q.size(-3), q.size(-1)};
  if (std::find(heads_.begin(), heads_.end(), heads) == heads_.end()) heads_.push_back(heads);
}

void OperatorInventory::note_classes(const SeenOp& op) {
  static constexpr std::array<std::string_view, 8> kLosses = {"cross_entropy_loss", "nll_loss",   "nll_loss_nd",       "mse_loss",
                                                              "smooth_l1_loss",     "huber_loss", "multi_margin_loss", "l1_loss"};
  const bool binary = op.name.starts_with("binary_cross_entropy");
  if ((!binary && !one_of(op.name, kLosses) && op.name != "log_softmax") || op.inputs.empty() || !op.inputs[0].isTensor()) return;
  const at::Tensor scores = op.inputs[0].toTensor();
  if (scores.dim() == 0) return;
  int64_t dim = scores.dim() > 1 ? 1 : 0;
  if (op.name == "log_softmax" && op.inputs.size() > 1 && op.inputs[1].isInt()) dim = op.inputs[1].toInt();
  classes_.insert(scores.size(dim));
}

std::vector<OperatorUse> OperatorInventory::uses() const {
  std::vector<OperatorUse> out;
  for (const auto& [key, use] : uses_) out.push_back(use);
  std::stable_sort(out.begin(), out.end(), [](const OperatorUse& a, const OperatorUse& b) { return a.seconds > b.seconds; });
  return out;
}

}  // namespace npu_train
