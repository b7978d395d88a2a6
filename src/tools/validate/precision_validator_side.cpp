#include "precision_validator_side.hpp"

#include <algorithm>

#include "npu_train/core/seed.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/trace/op_observer.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kMostSkips = 64;  // steps to skip until the loss scale has fallen from its largest to its smallest value

at::Tensor on_host(const at::Tensor& value) { return value.detach().to(at::kCPU, at::kFloat).contiguous().clone(); }

const std::vector<std::string> kAllParts{"model", "optimizer", "scaler", "ema", "rng", "loader", "loop"};

std::vector<std::string> all_but(const std::vector<std::string>& kept) {
  auto out = kAllParts;
  std::erase_if(out, [&](const std::string& part) { return std::find(kept.begin(), kept.end(), part) != kept.end(); });
  return out;
}

}  // namespace

double epsilon_of(at::ScalarType dtype) { return dtype == at::kBFloat16 ? 0x1p-7 : dtype == at::kHalf ? 0x1p-10 : 0x1p-23; }

at::ScalarType coarser(at::ScalarType a, at::ScalarType b) { return epsilon_of(a) > epsilon_of(b) ? a : b; }

void GradientTap::phase_begin(Phase phase, int64_t, int) {
  if (phase != Phase::Clip) return;
  seen.clear();
  for (const auto& p : trainer_.loop().parts().optimizer->parameters()) {
    const auto gradient = p.value.grad();
    if (!gradient.defined()) continue;
    const auto own = seen.emplace(p.name, on_host(gradient)).first->second;
    const auto other = instead == nullptr ? at::Tensor() : instead->count(p.name) != 0 ? instead->at(p.name) : own;
    if (other.defined() || rounded_to != at::kFloat) gradient.detach().copy_((other.defined() ? other : own).to(rounded_to));
  }
}

ValidationSide::ValidationSide(const RunConfig& config, const Parts& parts)
    : cpu_low_precision_(config.cpu_low_precision), trainer_(config, parts), tap_(trainer_) {
  trainer_.setup();
  begin();
}

ValidationSide::ValidationSide(const RunConfig& config, const Parts& parts, std::shared_ptr<Task> task, std::shared_ptr<const Dataset> data)
    : cpu_low_precision_(config.cpu_low_precision), trainer_(config, parts), tap_(trainer_) {
  trainer_.setup(std::move(task), std::move(data));
  begin();
}

void ValidationSide::begin() {
  trainer_.add_observer(&tap_);
  const auto& run = trainer_.loop().parts();
  const auto capabilities = backend_of(run.device).capabilities(run.device);
  channels_last_ = run.train_loader->options().channels_last;
  dtype_ = run.precision->low_precision_dtype();
  facts_ = {.device = run.device.str(),
            .precision = run.precision->name(),
            .dtype = dtype_name(dtype_),
            .emulated = dtype_ != at::kFloat && run.device.is_cpu() && emulates(cpu_low_precision_of(cpu_low_precision_), dtype_),
            .saturates = capabilities.saturating_overflow};
}

void ValidationSide::take_weights(const RunState& state) {
  const bool averaged = trainer_.loop().parts().average != nullptr;
  trainer_.load_state(state, all_but(averaged ? std::vector<std::string>{"model", "ema"} : std::vector<std::string>{"model"}));
}

void ValidationSide::shake(RunState state, double eps) {
  uint64_t stream = 0;
  const auto shaken = [&](const at::Tensor& weight) {
    auto value = on_host(weight);
    Philox random(/*seed=*/0, ++stream);
    float* data = value.mutable_data_ptr<float>();
    for (int64_t i = 0; i < value.numel(); ++i) data[i] *= static_cast<float>(1 + eps * (2 * random.uniform() - 1));
    return value;
  };
  const auto averages = state.find("ema");  // only averages of kind ema exist before the first update
  for (const auto& p : *trainer_.loop().parts().parameters) {
    auto& model = state.at("model").tensors;
    model[p.name] = shaken(model.at(p.name));
    if (averages == state.end()) continue;
    auto& tensors = averages->second.tensors;
    if (const auto average = tensors.find("average/" + p.name); average != tensors.end()) average->second = shaken(average->second);
  }
  take_weights(state);
}

// Converts the memory layout, because a device may lack kernels for the layout of the other side's loader.
at::Tensor ValidationSide::in_layout(const at::Tensor& value) const {
  return value.contiguous(channels_last_ && value.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

at::Tensor ValidationSide::predict(const at::Tensor& input) {
  const auto& device = trainer_.loop().parts().device;
  const auto& backend = backend_of(device);
  if (facts_.saturates) backend.clear_overflow_flag(device);
  auto out = trainer_.predict(in_layout(input)).contiguous();
  overflowed_ = facts_.saturates && backend.overflow_flag(device);
  return out;
}

std::vector<SeenOutput> ValidationSide::layers(const at::Tensor& input, const std::vector<std::string>& types) {
  return layers(input,
                [&](const std::string&, const std::string& type) { return std::find(types.begin(), types.end(), type) != types.end(); });
}

std::vector<SeenOutput> ValidationSide::layers(const at::Tensor& input, const Wanted& wanted) {
  std::vector<SeenOutput> out;
  const auto classes = trainer_.task().module_types();
  const OpObserver observer(*trainer_.loop().parts().parameters, [&](const SeenOp& op) {
    if (op.parameter.empty()) return;
    const auto layer = layer_of(op.parameter);
    const auto found = classes.find(layer);
    const auto type = found == classes.end() ? std::string() : found->second;
    if (!wanted(layer, type)) return;
    std::erase_if(out, [&](const SeenOutput& o) { return o.layer == layer; });  // the layer's last output counts: bias after product
    out.push_back({.layer = layer, .type = type, .op = op.name, .value = on_host(op.output)});
  });
  predict(input);
  if (observer.error() != nullptr) std::rethrow_exception(observer.error());
  return out;
}

TakenStep ValidationSide::step(const Batch& batch, at::ScalarType rounded_to, const HostTensors* gradients) {
  TakenStep out;
  tap_.rounded_to = rounded_to;
  const auto here = batch.map([this](const at::Tensor& t) { return in_layout(t); });
  for (tap_.instead = gradients; !out.taken && out.skipped <= kMostSkips;) {
    const RunState before{{"rng", trainer_.state().at("rng")}};
    const auto report = trainer_.train_step(here);
    out.loss = scalar_or(report.metrics, "loss", 0);
    out.taken = report.taken;
    out.loss_scale = report.loss_scale;
    if (out.taken) break;
    ++out.skipped;
    trainer_.load_state(before, all_but({"rng"}));
    if (trainer_.loop().parts().precision->at_floor()) break;
  }
  out.gradients = std::move(tap_.seen);
  return out;
}

at::ScalarType ValidationSide::updated_dtype() {
  auto out = at::kFloat;
  for (const auto& p : trainer_.loop().parts().optimizer->parameters()) out = coarser(out, p.value.scalar_type());
  return out;
}

HostTensors ValidationSide::weights() {
  HostTensors out;
  const auto state = trainer_.state();
  for (const auto& [name, value] : state.at("model").tensors)
    out.emplace(name, value.is_floating_point() ? on_host(value) : value.detach().to(at::kCPU).clone());
  return out;
}

}  // namespace npu_train::detail
