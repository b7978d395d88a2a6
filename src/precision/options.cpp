#include "npu_train/precision/emulation.hpp"
#include "npu_train/precision/precision.hpp"

namespace npu_train {

LossScaleOptions GradScalerOptions::loss_scale() const {
  return {.init_scale = init_scale,
          .growth_factor = growth_factor,
          .backoff_factor = backoff_factor,
          .growth_interval = growth_interval,
          .min_scale = min_scale,
          .max_scale = max_scale,
          .dynamic = dynamic,
          .hysteresis = hysteresis};
}

const ConfigTable<GradScalerOptions>& GradScalerOptions::config_table() {
  using T = GradScalerOptions;
  static const auto table =
      ConfigTable<T>("grad_scaler")
          .field("enabled", &T::enabled, "auto: on where the precision is fp16", one_of({"auto", "true", "false"}))
          .field("init_scale", &T::init_scale, "first loss scale", more_than(0))
          .field("growth_factor", &T::growth_factor, "the scale times this after growth_interval clean steps", more_than(1))
          .field("backoff_factor", &T::backoff_factor, "the scale times this after an overflow", between(0, 1))
          .field("growth_interval", &T::growth_interval, "clean steps in a row before the scale grows", at_least(1))
          .field("hysteresis", &T::hysteresis, "overflows until the scale falls; the count is reset when the scale grows", at_least(1))
          .field("min_scale", &T::min_scale, "floor; 0: none", at_least(0))
          .field("max_scale", &T::max_scale, "cap", more_than(0))
          .field("dynamic", &T::dynamic, "false: init_scale throughout the run; overflowing steps are still skipped")
          .synonym("loss_scale", "init_scale")
          .synonym("loss_scale_window", "growth_interval")
          .synonym("min_loss_scale", "min_scale");
  return table;
}

const ConfigTable<PrecisionOptions>& PrecisionOptions::config_table() {
  using T = PrecisionOptions;
  static const auto table =
      ConfigTable<T>("precision")
          .field("mode", &T::mode, "dtypes of parameters and computation; auto: bf16-mixed where the device multiplies bf16",
                 one_of(precision_modes()))
          .field("grad_scaler", &T::grad_scaler, "loss scaling for fp16")
          .field("fp32_modules", &T::fp32_modules, "paths of modules that keep fp32 parameters and compute in fp32, and classes of layers")
          .field("low_precision_modules", &T::low_precision_modules,
                 "exceptions to fp32_modules, and norm layers that the -true modes cast")
          .field("fp32_ops", &T::fp32_ops, "names of operators that compute in fp32")
          .field("cpu_low_precision", &T::cpu_low_precision, "bf16 and fp16 on a CPU; auto: emulated if it has no fast kernels for them",
                 one_of(cpu_low_precision_names()));
  return table;
}

const std::vector<std::string>& precision_modes() {
  static const std::vector<std::string> modes = {"auto",    "32-true", "bf16-mixed", "16-mixed", "bf16-true",
                                                 "16-true", "O0",      "O1",         "O2",       "O3"};
  return modes;
}

}  // namespace npu_train
