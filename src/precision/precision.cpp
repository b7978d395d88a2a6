#include "npu_train/precision/precision.hpp"

#include <ATen/ops/_foreach_mul.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/precision/emulation.hpp"
#include "precision/modes.hpp"

namespace npu_train {
namespace {

std::string resolve_mode(const std::string& mode, const Device& device) {
  if (mode == "O0") return "32-true";
  if (mode == "O1") return "16-mixed";
  if (mode == "O2") return "16-true";
  if (mode != "auto") return mode;
  if (device.is_cpu()) return "32-true";
  return backend_of(device).capabilities(device).native_bf16 ? "bf16-mixed" : "16-mixed";
}

void say_how(const std::string& mode, at::ScalarType dtype, const Device& device, CpuLowPrecision cpu) {
  const auto has = backend_of(device).capabilities(device);
  const bool units = dtype == at::kHalf ? has.native_fp16 : has.native_bf16;
  const std::string type = dtype == at::kHalf ? "fp16" : "bf16";
  if (device.is_cpu() && emulates(cpu, dtype)) {
    log_info("precision " + mode + ": " + type + " is emulated by fp32 kernels" + (units ? "" : ", this CPU has no units for it") +
             " (cpu_low_precision)");
    return;
  }
  if (units) return;
  warn_once("precision/" + device.kind + "/" + type,
            "precision " + mode + ": " + device.str() + " has no units for " + type + "; this will be slower than 32-true");
}

}  // namespace

ParameterSet Precision::prepare(const ParameterSet& model_parameters, const std::vector<std::string>&) {
  check(updated_.empty(), ErrorKind::Usage, "Precision", "prepare() was called twice; make one Precision for each model");
  updated_ = model_parameters;
  return updated_;
}

StepGate Precision::unscale_and_check(double factor) {
  if (factor != 1) {
    const c10::NoGradGuard no_grad;
    if (const auto gradients = updated_.grads(); !gradients.empty()) at::_foreach_mul_(gradients, factor);
  }
  return {};
}

std::unique_ptr<Precision> make_precision(const PrecisionOptions& options, const Device& device) {
  const auto& modes = precision_modes();
  if (std::find(modes.begin(), modes.end(), options.mode) == modes.end()) {
    const auto near = nearest_name(options.mode, modes);
    throw Error(ErrorKind::Usage, "precision", "'" + options.mode + "' is not a precision; there are: " + join(modes),
                near.empty() ? "" : "did you mean " + near + "?");
  }
  const auto mode = resolve_mode(options.mode, device);
  const bool fp16 = mode.starts_with("16-") || mode == "O3";
  const auto& wanted = options.grad_scaler.enabled;
  check(wanted == "auto" || wanted == "true" || wanted == "false", ErrorKind::Usage, "grad_scaler.enabled", "'", wanted,
        "' is not one of auto, true, false");
  check(wanted != "true" || fp16, ErrorKind::Usage, "grad_scaler.enabled", "a loss scale makes no sense with precision ", mode,
        ", whose gradients have the range of fp32; hint: leave it at auto, or use precision 16-mixed");
  if (mode == "32-true") return std::make_unique<Precision>();

  const auto dtype = fp16 ? at::kHalf : at::kBFloat16;
  const auto cpu = cpu_low_precision_of(options.cpu_low_precision);
  say_how(mode, dtype, device, cpu);
  std::optional<LossScale> scale;
  if (fp16 && wanted != "false") scale.emplace(options.grad_scaler.loss_scale());
  if (mode.ends_with("-mixed")) return std::make_unique<detail::MixedPrecision>(mode, device, dtype, cpu, scale);
  return std::make_unique<detail::TruePrecision>(mode, device, dtype, cpu, scale, /*masters=*/mode != "O3", options.fp32_modules);
}

}  // namespace npu_train
