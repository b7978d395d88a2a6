#include "npu_train/precision/precision.hpp"

#include <ATen/ops/_foreach_mul.h>
#include <c10/core/GradMode.h>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/precision/policy.hpp"
#include "precision/modes.hpp"

namespace npu_train {
namespace {

void say_how(const PrecisionPolicy& p) {
  const std::string type = dtype_name(p.dtype);
  check(p.native || backend_of(p.device).capabilities(p.device).computes_without_units, ErrorKind::Usage, "precision", p.mode, " on ",
        p.device.str(), ": this chip has no ", type, "; hint: 16-mixed, or 32-true");
  if (p.emulated)
    log_info("precision ", p.mode, ": ", type, " is emulated by fp32 kernels",
             p.native ? "" : ", since libtorch's kernels for it are slow on this CPU", " (cpu_low_precision)");
  else if (!p.native)
    warn_once("precision/" + p.device.kind + "/" + type,
              "precision " + p.mode + ": " + p.device.str() + " has no fast kernels for " + type + "; this will be slower than 32-true");
}

}  // namespace

ParameterSet Precision::prepare(const ParameterSet& model_parameters, const std::vector<std::string>&) {
  check(updated_.empty(), ErrorKind::Usage, "Precision", "prepare() was called twice; make one Precision for each model");
  updated_ = model_parameters;
  return updated_;
}

ParameterSet Precision::refresh(const ParameterSet& model_parameters) {
  updated_ = model_parameters;
  return updated_.filter([](const Parameter& p) { return p.value.requires_grad(); });
}

StepDecision Precision::unscale_and_check(double factor) {
  if (factor != 1) {
    const c10::NoGradGuard no_grad;
    if (const auto gradients = updated_.grads(); !gradients.empty()) at::_foreach_mul_(gradients, factor);
  }
  return {};
}

std::unique_ptr<Precision> precision_of_own_loop(const std::optional<LossScaleOptions>& scale, const Device& device) {
  if (!scale) return std::make_unique<Precision>();
  auto autocast = detail::AutocastOptions{device, at::kFloat, CpuLowPrecision::Native, {}};
  return std::make_unique<detail::MixedPrecision>("32-true", std::move(autocast), LossScale(*scale));
}

std::unique_ptr<Precision> make_precision(const PrecisionOptions& options, const Device& device) {
  const auto policy = precision_policy(options, device);
  if (policy.dtype == at::kFloat) return std::make_unique<Precision>();
  say_how(policy);
  auto autocast =
      detail::AutocastOptions{device, policy.dtype, cpu_low_precision_of(options.cpu_low_precision), Fp32Ops(policy.fp32_ops, device)};
  std::optional<LossScale> scale;
  if (policy.loss_scale) scale.emplace(*policy.loss_scale);
  if (!policy.low_parameters) return std::make_unique<detail::MixedPrecision>(policy.mode, std::move(autocast), scale);
  return std::make_unique<detail::TruePrecision>(policy.mode, std::move(autocast), scale, policy.masters,
                                                 AmpModules{options.fp32_modules, options.low_precision_modules});
}

}  // namespace npu_train
