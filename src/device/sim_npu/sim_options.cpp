// The table of the options. It needs yaml-cpp and is therefore separate from the backend, which every program links.
#include "npu_train/device/sim_npu.hpp"

namespace npu_train {

const ConfigTable<SimNpuOptions>& SimNpuOptions::config_table() {
  using T = SimNpuOptions;
  static const auto table =
      ConfigTable<T>("sim_npu")
          .field("soc", &T::soc, "the chip that is simulated", one_of({"910A", "910B1", "910B4", "310P"}))
          .field("devices", &T::devices, "how many", between(1, 64))
          .field("hbm", &T::hbm, "memory of each, as in 32GiB; beyond it: out of memory")
          .field("overflow_mode", &T::overflow_mode, "auto: of the chip; a 910B can be both", one_of({"auto", "saturation", "inf_nan"}))
          .field("unsupported_ops", &T::unsupported_ops, "operators without a kernel on the chip; warn: named once and run",
                 one_of({"warn", "error", "ignore"}));
  return table;
}

}  // namespace npu_train
