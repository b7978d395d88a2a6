#include "npu_train/analyze/operator_inventory.hpp"

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "npu_train/core/text.hpp"
#include "npu_train/device/operator_support.hpp"

namespace npu_train {
namespace {

constexpr size_t kMost = 6;  // shapes and layers that are kept of one kind

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<at::Tensor> tensors_in(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> out;
  for (const auto& value : values) {
    if (value.isTensor() && value.toTensor().defined()) out.push_back(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& t : value.toTensorList()) out.push_back(t);
    if (value.isOptionalTensorList())
      for (const std::optional<at::Tensor> t : value.toOptionalTensorList())
        if (t && t->defined()) out.push_back(*t);
  }
  return out;
}

std::string shapes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> out;
  for (size_t i = 0; i < tensors.size() && i < 4; ++i) out.push_back(c10::str(tensors[i].sizes()));
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
  const auto tensors = tensors_in(op.inputs);
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
  const auto inputs = tensors_in(op.inputs);
  return !inputs.empty() && op.output.defined() && !inputs[0].is_cpu() && op.output.is_cpu();
}

std::string autocast_of(const at::Tensor& input, const at::Tensor& output) {
  if (!at::autocast::is_autocast_enabled(input.device().type())) return "";
  const bool changed = input.is_floating_point() && output.is_floating_point() && input.scalar_type() != output.scalar_type();
  return changed ? "to " + listed_dtype(c10::toString(output.scalar_type())) : "as given";
}

}  // namespace

std::string OperatorUse::full_name() const {
  return (library == "aten" || library.empty() ? "" : library + "::") + name + (overload.empty() ? "" : "." + overload);
}

OperatorInventory::OperatorInventory(ParameterSet parameters) : parameters_(std::move(parameters)) {}
OperatorInventory::~OperatorInventory() = default;

void OperatorInventory::phase_begin(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) {
  if (phase != Phase::Forward && phase != Phase::Backward && phase != Phase::Optimizer) return;
  phase_ = phase_name(phase);
  observer_.reset(new OpObserver(parameters_, *this, /*every=*/true));  // make_unique does not see the base
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

void OperatorInventory::op_begins(const SeenOp& /*op*/) { began_ = seconds_now(); }

void OperatorInventory::op_ended(const SeenOp& op) {
  const double took = seconds_now() - began_;
  const auto inputs = tensors_in(op.inputs);
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
  if (first.defined() && op.output.defined())
    if (const auto decision = autocast_of(first, op.output); use.autocast.empty() || use.autocast == "as given") use.autocast = decision;
  note_heads(op);
}

void OperatorInventory::note_heads(const SeenOp& op) {
  if (op.name.find("scaled_dot_product") == std::string::npos || op.inputs.empty() || !op.inputs[0].isTensor()) return;
  const at::Tensor q = op.inputs[0].toTensor();
  if (q.dim() < 3) return;
  const std::pair heads{q.size(-3), q.size(-1)};
  if (std::find(heads_.begin(), heads_.end(), heads) == heads_.end()) heads_.push_back(heads);
}

std::vector<OperatorUse> OperatorInventory::uses() const {
  std::vector<OperatorUse> out;
  for (const auto& [key, use] : uses_) out.push_back(use);
  std::stable_sort(out.begin(), out.end(), [](const OperatorUse& a, const OperatorUse& b) { return a.seconds > b.seconds; });
  return out;
}

}  // namespace npu_train
