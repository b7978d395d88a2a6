#include "npu_train/precision/policy.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/precision/autocast.hpp"
#include "npu_train/precision/emulation.hpp"
#include "precision/modes.hpp"

namespace npu_train {
namespace {

std::string resolve_mode(const std::string& mode, const Device& device) {
  const auto& modes = precision_modes();
  if (std::find(modes.begin(), modes.end(), mode) == modes.end()) {
    const auto near = nearest_name(mode, modes);
    throw Error(ErrorKind::Usage, "precision", "'" + mode + "' is not a precision; there are: " + join(modes),
                near.empty() ? "" : "did you mean " + near + "?");
  }
  if (mode == "O0") return "32-true";
  if (mode == "O1") return "16-mixed";
  if (mode == "O2") return "16-true";
  if (mode != "auto") return mode;
  return detail::auto_mode(device, backend_of(device).capabilities(device));
}

}  // namespace

// Emulation on a CPU saves memory but no time, so auto never selects it.
std::string detail::auto_mode(const Device& device, const Capabilities& has) {
  if (has.native_bf16) return "bf16-mixed";
  return device.is_cpu() ? "32-true" : "16-mixed";
}

namespace {

ConfigNode texts(const std::vector<std::string>& values) {
  std::vector<ConfigNode> items;
  for (const auto& v : values) items.emplace_back(v);
  return ConfigNode::list(std::move(items));
}

ConfigNode scale_node(const LossScaleOptions& o) {
  ConfigNode out = {{"init_scale", o.init_scale}, {"dynamic", o.dynamic}};
  if (!o.dynamic) return out;
  out.set("growth_factor", o.growth_factor);
  out.set("backoff_factor", o.backoff_factor);
  out.set("growth_interval", o.growth_interval);
  out.set("hysteresis", o.hysteresis);
  out.set("min_scale", o.min_scale);
  out.set("max_scale", o.max_scale);
  return out;
}

// Returns `ops` and the operators of the layer classes that `modules` lists, each once.
std::vector<std::string> with_classes(std::vector<std::string> ops, const std::vector<std::string>& modules) {
  for (const auto& entry : modules)
    for (const auto& op : fp32_ops_of_class(entry))
      if (std::find(ops.begin(), ops.end(), op) == ops.end()) ops.push_back(op);
  return ops;
}

}  // namespace

std::string dtype_name(at::ScalarType dtype) {
  if (dtype == at::kFloat) return "fp32";
  if (dtype == at::kBFloat16) return "bf16";
  if (dtype == at::kHalf) return "fp16";
  return c10::toString(dtype);
}

void check_loss_scale_use(const std::string& enabled, const std::string& mode) {
  check(enabled != "true" || !(mode == "32-true" || mode == "O0" || mode.starts_with("bf16")), ErrorKind::Usage, "grad_scaler.enabled",
        "a loss scale has no use with precision ", mode,
        ", whose gradients have the range of fp32; hint: leave it at auto, or use precision 16-mixed");
}

PrecisionPolicy precision_policy(const PrecisionOptions& options, const Device& device) {
  PrecisionPolicy p;
  p.device = device;
  p.mode = resolve_mode(options.mode, device);
  const bool fp16 = p.mode.starts_with("16-") || p.mode == "O3";
  check_limits(options.grad_scaler, "grad_scaler");
  check_loss_scale_use(options.grad_scaler.enabled, p.mode);
  AmpModules{options.fp32_modules, options.low_precision_modules}.check();
  check_fp32_ops(options.fp32_ops);
  p.overflow_detector = "none";
  if (p.mode == "32-true") return p;

  const auto has = backend_of(device).capabilities(device);
  p.dtype = fp16 ? at::kHalf : at::kBFloat16;
  p.native = fp16 ? has.native_fp16 : has.native_bf16;
  p.emulated = emulates(cpu_low_precision_of(options.cpu_low_precision), p.dtype) && device.is_cpu();
  p.low_parameters = !p.mode.ends_with("-mixed");
  p.masters = p.low_parameters && p.mode != "O3";
  if (fp16 && options.grad_scaler.enabled != "false") {
    p.loss_scale = LossScale(options.grad_scaler.loss_scale()).options();
    p.overflow_detector = has.saturating_overflow ? "finite check and status flag" : "finite check";
  }
  p.fp32_ops = with_classes(options.fp32_ops, options.fp32_modules);
  p.fp32_modules = options.fp32_modules;
  p.low_precision_modules = options.low_precision_modules;
  return p;
}

ConfigNode PrecisionPolicy::node() const {
  ConfigNode out = ConfigNode::map();
  out.set("mode", mode);
  out.set("device", device.str());
  out.set("computes", dtype_name(dtype));
  if (dtype != at::kFloat) out.set("kernels", emulated ? "fp32, rounded (emulated)" : native ? "native" : "native, slow on this device");
  out.set("parameters", low_parameters ? dtype_name(dtype) + (masters ? ", fp32 masters" : ", no masters") : "fp32");
  out.set("loss_scale", loss_scale ? scale_node(*loss_scale) : ConfigNode("none"));
  out.set("overflow_detector", overflow_detector);
  out.set("fp32_ops", texts(fp32_ops));
  if (!fp32_ops_not_met.empty()) out.set("fp32_ops_not_met", texts(fp32_ops_not_met));
  out.set("fp32_modules", texts(fp32_modules));
  out.set("low_precision_modules", texts(low_precision_modules));
  if (layers.empty()) return out;
  ConfigNode rows = ConfigNode::map();
  for (const auto& l : layers) {
    ConfigNode::Member row;
    row.key = l.name.empty() ? "(the model itself)" : l.name;
    row.value = {{"op", l.op}, {"computes", l.computes}, {"parameters", l.parameters}};
    rows.put(std::move(row));
  }
  out.set("layers", std::move(rows));
  return out;
}

}  // namespace npu_train
