#include "operator_calls.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/rand.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <sstream>

#include "npu_train/core/text.hpp"
#include "npu_train/trace/operator_values.hpp"

namespace npu_train::detail {
namespace {

std::string described(const at::Tensor& t) { return str_cat(c10::toString(t.scalar_type()), " ", t.sizes()); }

std::string inputs_text(at::ArrayRef<c10::IValue> inputs) {
  std::vector<std::string> out;
  for (const auto& t : tensors_of(inputs)) out.push_back(described(t));
  return join(out);
}

// Returns a text that is the same for all calls that do the same computation on different values.
std::string signature(const std::string& name, at::ArrayRef<c10::IValue> inputs) {
  std::ostringstream out;
  out << name;
  for (const auto& value : inputs) {
    out << '|';
    const auto tensors = tensors_of(std::vector<c10::IValue>{value});
    for (const auto& t : tensors) out << described(t) << t.strides() << t.requires_grad();
    if (tensors.empty()) out << value;
  }
  return out.str();
}

bool is_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) { return result.alias_info() != nullptr && !result.alias_info()->isWrite(); });
}

// Whether the operator computes anything; views, new memory and numbers for the host do not count.
bool computes(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> inputs) {
  const auto& schema = op.schema();
  const auto gives_tensor = [](const c10::Argument& result) { return result.type()->str().find("Tensor") != std::string::npos; };
  return !tensors_of(inputs).empty() && !is_view(schema) && schema.name().find("empty") == std::string::npos &&
         std::any_of(schema.returns().begin(), schema.returns().end(), gives_tensor);
}

// Whether the operator draws random numbers. Attention and recurrent layers draw them only for dropout.
bool draws(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> inputs) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded)) return false;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == "dropout_p" || arguments[i].name() == "dropout" || arguments[i].name() == "p")
      return !inputs[i].isDouble() || inputs[i].toDouble() != 0;
  return true;
}

at::Tensor copied(const at::Tensor& t) { return t.detach().clone().requires_grad_(t.requires_grad()); }

bool is_plain(const at::Tensor& t) { return t.is_cpu() && t.layout() == at::kStrided && !t.is_quantized(); }

}  // namespace

OperatorRecorder::OperatorRecorder(const ParameterSet& parameters, int64_t bytes)
    : bytes_left_(bytes), bytes_(bytes), calls_(std::make_shared<std::vector<OperatorCall>>()) {
  for (const auto& p : parameters) layers_[p.value.unsafeGetTensorImpl()] = layer_of(p.name);
}

void OperatorRecorder::phase_begin(Phase phase, int64_t /*attempt*/, int micro_batch) {
  if (phase != Phase::Forward) return;
  if (micro_batch == 0) {
    calls_ = std::make_shared<std::vector<OperatorCall>>();
    index_.clear();
    bytes_left_ = bytes_;
  }
  guard_.emplace(*this);
}

void OperatorRecorder::phase_end(Phase phase, int64_t /*attempt*/, int /*micro_batch*/) {
  if (phase == Phase::Forward) guard_.reset();
}

void OperatorRecorder::phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr /*error*/) {
  phase_end(phase, attempt, micro_batch);
}

void OperatorRecorder::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  const auto inputs = torch::jit::last(stack, schema.arguments().size());
  std::optional<size_t> fresh;
  {
    const NoOpMode below;
    if (computes(op, inputs)) {
      const auto name =
          schema.name().substr(schema.name().find("::") + 2) + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
      const auto [place, is_new] = index_.try_emplace(signature(name, inputs), calls_->size());
      if (is_new) {
        fresh = calls_->size();
        calls_->push_back({.op = op, .name = name, .layer = {}, .inputs_text = inputs_text(inputs)});
        keep(calls_->back(), inputs);
      }
      ++(*calls_)[place->second].count;
    }
  }
  call_below(op, stack);
  if (fresh && (*calls_)[*fresh].why_not.empty()) watch(*fresh, torch::jit::last(stack, schema.returns().size()));
}

void OperatorRecorder::keep(OperatorCall& call, at::ArrayRef<c10::IValue> inputs) {
  int64_t bytes = 0;
  for (const auto& t : tensors_of(inputs)) {
    if (const auto layer = layers_.find(t.unsafeGetTensorImpl()); layer != layers_.end() && call.layer.empty()) call.layer = layer->second;
    if (!is_plain(t)) call.why_not = "a tensor among its inputs is sparse, quantized or not on the CPU";
    bytes += static_cast<int64_t>(t.nbytes());
  }
  if (draws(call.op, inputs)) call.why_not = "it draws random numbers";
  if (call.why_not.empty() && bytes > bytes_left_) call.why_not = "the memory for the inputs of operators is used up";
  if (!call.why_not.empty()) return;
  bytes_left_ -= bytes;
  call.low = at::autocast::is_autocast_enabled(at::kCPU);
  for (const auto& value : inputs) call.inputs.push_back(with_tensors(value, copied));
}

void OperatorRecorder::watch(size_t index, at::ArrayRef<c10::IValue> results) {
  const NoOpMode below;
  const auto tensors = tensors_of(results);
  (*calls_)[index].gradients.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].requires_grad())
      tensors[i].register_hook([calls = calls_, index, i](const at::Tensor& gradient) {
        if (gradient.defined()) (*calls)[index].gradients[i] = gradient.detach().clone();
      });
}

namespace {

// Copies tensors to fp64, with a random relative change of each element.
class Fp64 {
 public:
  explicit Fp64(double change) : change_(change), random_(at::detail::createCPUGenerator(/*seed=*/1)) {}
  at::Tensor of(const at::Tensor& t) const {
    if (!t.is_floating_point()) return t.detach().clone();
    const at::Tensor out = t.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    return change_ == 0 ? out : out.mul_(at::rand(out.sizes(), random_, out.options()).mul_(2 * change_).add_(1 - change_));
  }

 private:
  double change_;
  at::Generator random_;
};

// The inputs of a call on a device. An operator that writes into an input gets a copy of the leaf, because autograd forbids writes into
// leaves.
class Placed {
 public:
  Placed(const OperatorCall& call, const c10::Device& device, const Fp64* fp64) : device_(device), fp64_(fp64) {
    const auto& schema = call.op.schema();
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const auto& name = schema.arguments()[i].name();
      size_t in_list = 0;
      stack.push_back(with_tensors(option(name, call.inputs[i]), [&](const at::Tensor& t) {
        return place(call.inputs[i].isTensor() ? name : str_cat(name, "[", in_list++, "]"), t, schema.is_mutable());
      }));
    }
  }

  torch::jit::Stack stack;
  std::vector<NamedResult> leaves, others;

 private:
  c10::IValue option(const std::string& name, const c10::IValue& value) const {
    if (name == "device" && value.isDevice()) return device_;
    if (fp64_ != nullptr && name == "dtype" && value.isInt() && at::isFloatingType(static_cast<at::ScalarType>(value.toInt())))
      return static_cast<int64_t>(at::kDouble);
    return value;
  }

  at::Tensor place(const std::string& name, const at::Tensor& t, bool writes) {
    const at::Tensor value =
        fp64_ != nullptr ? fp64_->of(t) : t.detach().to(device_, t.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    if (!t.requires_grad()) {
      others.push_back({name, value});
      return value;
    }
    leaves.push_back({name, value.requires_grad_()});
    return writes ? value.clone() : value;
  }

  c10::Device device_;
  const Fp64* fp64_;
};

void add_gradients(const OperatorCall& call, const std::vector<at::Tensor>& outputs, const std::vector<NamedResult>& leaves,
                   const Fp64* fp64, std::vector<NamedResult>& to) {
  torch::autograd::variable_list roots, seeds, inputs;
  for (size_t i = 0; i < std::min(outputs.size(), call.gradients.size()); ++i) {
    if (!call.gradients[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    const at::Tensor seed = fp64 != nullptr ? fp64->of(call.gradients[i]) : call.gradients[i];
    seeds.push_back(seed.to(outputs[i].options().requires_grad(false)));
  }
  if (roots.empty()) return;
  for (const auto& leaf : leaves) inputs.push_back(leaf.value);
  const auto gradients = torch::autograd::grad(roots, inputs, seeds, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t i = 0; i < leaves.size(); ++i)
    if (gradients[i].defined()) to.push_back({"gradient of " + leaves[i].name, gradients[i]});
}

AloneResult run(const OperatorCall& call, const c10::Device& device, const Precision* precision, const Fp64* fp64) {
  const c10::AutoGradMode with_gradients(true);
  Placed placed(call, device, fp64);
  {
    const auto scope = call.low && precision != nullptr ? precision->forward_scope() : nullptr;
    call.op.callBoxed(placed.stack);
  }
  AloneResult out;
  const auto outputs = tensors_of(placed.stack);
  for (size_t i = 0; i < outputs.size(); ++i) out.results.push_back({i == 0 ? "output" : str_cat("output ", i + 1), outputs[i]});
  add_gradients(call, outputs, placed.leaves, fp64, out.results);
  for (const auto& [name, value] : placed.others) out.arguments.push_back({name + " afterwards", value});
  for (auto* list : {&out.results, &out.arguments})
    for (auto& result : *list) result.value = result.value.detach().cpu();
  return out;
}

}  // namespace

AloneResult run_alone(const OperatorCall& call, const c10::Device& device, const Precision& precision) {
  return run(call, device, &precision, nullptr);
}

AloneResult run_in_fp64(const OperatorCall& call, double change) {
  const Fp64 fp64(change);
  return run(call, at::kCPU, nullptr, &fp64);
}

}  // namespace npu_train::detail
