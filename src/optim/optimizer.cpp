#include "npu_train/optim/optimizer.hpp"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "npu_train/base/saved_part.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "optim/first_names.hpp"

namespace npu_train {
namespace {

constexpr const char* kOtherParameters =
    "; hint: other parameters are trained now: resume with the model.freeze and model.lora of that run, or begin a new one with its "
    "weights "
    "(model.weights)";

// Returns whether the optimizer kernels of the tensor's device accept found_inf. NPU kernels ignore it.
bool skips_on_its_device(const at::Tensor& t) {
  const auto device = device_of(t.device());
  return backend_of(device).capabilities(device).skips_on_device;
}

// Compares layouts; ignores strides of dimensions of size 1, which do not affect where elements are stored.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  const auto sizes = a.sizes();
  if (sizes != b.sizes()) return false;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (sizes[d] > 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

// Returns the tensor in the parameter's layout. The fused kernels iterate over memory and require the same layout for all operands of a
// parameter; on a CPU they do not check it.
at::Tensor laid_out_as(const at::Tensor& t, const at::Tensor& parameter) {
  const bool same_type = t.scalar_type() == parameter.scalar_type();
  if (same_type && t.strides() == parameter.strides()) return t;
  if (same_type && same_layout(t, parameter)) return t.as_strided(parameter.sizes(), parameter.strides());
  return at::empty_like(parameter, parameter.options().requires_grad(false)).copy_(t);
}

}  // namespace

Optimizer::Optimizer(ParameterSet parameters, double lr, std::vector<GroupOptions> groups)
    : parameters_(std::move(parameters)), lr_(lr), groups_(std::move(groups)) {
  for (const auto& g : groups_)
    for (const double factor : {g.lr_mult, g.decay_mult})
      check(factor >= 0 && factor < 1e30, ErrorKind::Usage, "Optimizer", "lr_mult ", g.lr_mult, " and decay_mult ", g.decay_mult,
            " of a group; they must be at least 0 and less than 1e30");
  check_parameters(parameters_);
}

Optimizer::Optimizer(ParameterSet parameters, double lr, bool no_decay)
    : Optimizer(no_decay ? split_no_decay(std::move(parameters)) : std::move(parameters), lr, default_groups()) {
  no_decay_ = no_decay;
}

ParameterSet Optimizer::grouped(ParameterSet parameters) const { return no_decay_ ? split_no_decay(std::move(parameters)) : parameters; }

void Optimizer::check_parameters(const ParameterSet& parameters) const {
  for (const auto& p : parameters) {
    const auto usage = [&](bool ok, const auto&... what) { check(ok, ErrorKind::Usage, "Optimizer", p.name, what...); };
    usage(p.value.is_floating_point(), " is ", p.value.scalar_type(), "; only floating point is trained");
    usage(p.value.is_leaf(), " is the result of an operation; an optimizer takes leaves");
    usage(p.value.is_non_overlapping_and_dense(), " is not dense in memory; call .contiguous() on it before training");
    usage(p.group >= 0 && p.group < static_cast<int>(groups_.size()), " is in group ", p.group, "; there are ", groups_.size(), " groups");
  }
}

namespace {

bool is_low(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

at::ScalarType state_dtype(bool wide, const at::Tensor& value) {
  return wide && is_low(value.scalar_type()) ? at::kFloat : value.scalar_type();
}

}  // namespace

at::Tensor Optimizer::fresh_state(const Parameter& parameter, const Slot& slot) {
  if (slot.has && !slot.has(parameter)) return {};
  const auto value = parameter.value.detach();
  if (slot.kind == SlotKind::Number) return at::full({}, slot.initial, value.options().dtype(at::kFloat));
  const auto options = value.options().dtype(state_dtype(slot.kind != SlotKind::LikeParameter, value));
  if (slot.kind == SlotKind::LikeParameter || slot.kind == SlotKind::Wide) return at::full_like(value, slot.initial, options);
  auto sizes = value.sizes().vec();
  sizes.at(sizes.size() - (slot.kind == SlotKind::Rows ? 1 : 2)) = 1;
  return at::full(sizes, slot.initial, options);
}

void Optimizer::add_slot(const std::string& name, SlotKind kind, double initial, HasSlot has) {
  Slot slot{name, kind, initial, std::move(has), {}};
  for (const auto& p : parameters_) slot.tensors.push_back(fresh_state(p, slot));
  slots_.push_back(std::move(slot));
}

bool Optimizer::is_low_precision(const Bucket& bucket) { return is_low(bucket.parameters.front().scalar_type()); }

void Optimizer::set_parameters(ParameterSet parameters) {
  parameters = grouped(std::move(parameters));
  check_parameters(parameters);
  parameters = with_rules(std::move(parameters));
  std::unordered_map<std::string, size_t> before;
  for (size_t i = 0; i < parameters_.size(); ++i) before.emplace(parameters_[i].name, i);
  for (auto& slot : slots_) {
    std::vector<at::Tensor> tensors;
    for (const auto& p : parameters) {
      const auto had = before.find(p.name);
      const bool keeps = had != before.end() && parameters_[had->second].is_same_part(p);
      tensors.push_back(keeps ? slot.tensors[had->second] : fresh_state(p, slot));
    }
    slot.tensors = std::move(tensors);
  }
  parameters_ = std::move(parameters);
}

// Moves the state to the current memory format and device of its parameter.
void Optimizer::follow_layout(size_t i) {
  const auto& value = parameters_[i].value;
  for (auto& slot : slots_) {
    auto& t = slot.tensors[i];
    if (!t.defined()) continue;
    if (slot.kind == SlotKind::LikeParameter || slot.kind == SlotKind::Wide) {
      const auto dtype = state_dtype(slot.kind == SlotKind::Wide, value);
      if (t.strides() != value.strides() || t.device() != value.device() || t.scalar_type() != dtype)
        t = at::empty_like(value, value.options().requires_grad(false).dtype(dtype)).copy_(t);
    } else if (t.device() != value.device()) {
      t = t.to(value.device());
    }
  }
}

std::vector<Optimizer::Bucket> Optimizer::make_buckets() {
  std::map<std::tuple<c10::DeviceType, int, at::ScalarType, int>, size_t> index;
  std::vector<Bucket> buckets;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& p = parameters_[i];
    const auto& gradient = p.value.grad();
    if (!gradient.defined()) continue;
    check(!gradient.is_sparse(), ErrorKind::Usage, "Optimizer", "the gradient of ", p.name,
          " is sparse; npu_train's optimizers take dense ones");
    follow_layout(i);
    const auto device = p.value.device();
    const auto key = std::make_tuple(device.type(), static_cast<int>(device.index()), p.value.scalar_type(), p.group);
    const auto [at, added] = index.try_emplace(key, buckets.size());
    if (added) {
      const auto& group = groups_[static_cast<size_t>(p.group)];
      buckets.emplace_back();
      buckets.back().slots.resize(slots_.size());
      buckets.back().lr = lr_ * group.lr_mult;
      buckets.back().decay_mult = group.decay_mult;
      buckets.back().own_decay = group.weight_decay;
    }
    auto& bucket = buckets[at->second];
    bucket.parameters.push_back(p.value);
    bucket.gradients.push_back(gradient);
    for (size_t s = 0; s < slots_.size(); ++s) bucket.slots[s].push_back(slots_[s].tensors[i]);
  }
  return buckets;
}

void Optimizer::step(const StepDecision& given) {
  translated(name().c_str(), [&] {
    const c10::NoGradGuard no_grad;
    StepDecision decision = given;
    auto buckets = make_buckets();
    // For parameters on a device, the host decides whether to step in two cases: if the flag is already on the host, where reading it is
    // free, or if the device cannot skip a step.
    const auto needs_host = [&](const Bucket& b) {
      const auto& p = b.parameters.front();
      return !p.is_cpu() && (decision.found_inf.is_cpu() || !skips_on_its_device(p));
    };
    if (decision.found_inf.defined() && std::any_of(buckets.begin(), buckets.end(), needs_host)) {
      if (decision.found_inf.item<float>() != 0) return;
      decision.found_inf = at::Tensor();
    }
    for (auto& bucket : buckets) {
      const auto device = bucket.parameters.front().device();
      if (decision.inv_scale.defined()) at::_foreach_mul_(bucket.gradients, decision.inv_scale.to(device));
      for (size_t i = 0; i < bucket.gradients.size(); ++i) bucket.gradients[i] = laid_out_as(bucket.gradients[i], bucket.parameters[i]);
      // the kernels skip only if the flag is exactly 1
      if (decision.found_inf.defined()) bucket.found_inf = decision.found_inf.to(device).ne(0).to(at::kFloat);
      update(bucket);
    }
    keep_limits(decision.found_inf);
  });
}

// Clamps parameters to their limits. A skipped step changes no parameter, not even one that is outside of its limits.
void Optimizer::keep_limits(const at::Tensor& found_inf) const {
  for (const auto& limit : limits_) {
    const auto* found = parameters_.find(limit.name);
    if (found == nullptr || !found->value.grad().defined()) continue;
    at::Tensor value = found->value;
    const at::Tensor within = limit.within(value);
    value.copy_(found_inf.defined() ? at::where(found_inf.to(value.device()).ne(0), value, within) : within);
  }
}

State Optimizer::state() const {
  State out;
  out.values["optimizer"] = name();
  for (const auto& slot : slots_)
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (slot.tensors[i].defined()) out.tensors[slot.name + "/" + parameters_[i].name] = slot.tensors[i];
  return out;
}

void Optimizer::load_state(const State& saved) {
  const auto where = "optimizer " + name();
  const auto refuse = [&](bool ok, const auto&... what) { check(ok, ErrorKind::Checkpoint, where.c_str(), what...); };
  refuse(saved.text("optimizer", where) == name(), "the saved state is of '", saved.text("optimizer", where),
         "'; hint: resume with that optimizer");
  const auto own = this->state();
  const auto state = detail::under_first_names(saved, own, parameters_, where);
  struct Entry {
    at::Tensor to, from;
  };
  std::vector<Entry> entries;
  for (const auto& slot : slots_)
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!slot.tensors[i].defined()) continue;
      const auto key = slot.name + "/" + parameters_[i].name;
      const auto found = state.tensors.find(key);
      refuse(found != state.tensors.end(), "the saved state has no ", key, kOtherParameters);
      const bool follows = slot.kind == SlotKind::LikeParameter || slot.kind == SlotKind::Wide;  // such a slot can have slices
      const auto sizes = follows ? parameters_[i].whole().sizes() : slot.tensors[i].sizes();
      const auto fits = !follows && found->second.sizes() == sizes;
      const auto part = fits ? found->second : !follows ? at::Tensor() : detail::saved_part(parameters_[i], found->second);
      refuse(part.defined(), key, " has the shape ", found->second.sizes(), " in the saved state, ", sizes, " here");
      entries.push_back({slot.tensors[i], part});
    }
  for (const auto& [key, tensor] : state.tensors)
    refuse(own.tensors.count(key) != 0, "the saved state has ", key, ", which this optimizer does not have", kOtherParameters);
  const c10::NoGradGuard no_grad;
  for (const auto& entry : entries) entry.to.detach().copy_(entry.from);
}

}  // namespace npu_train
