/// The simulated NPU: what an Ascend NPU is to a program, on the memory and cores of the host, so that training for one can be written and
/// tested on a laptop. `device: sim_npu` loads it; nothing of it is in a process that does not ask.
///
/// It has devices with their own memory of a set size, streams, events, generators and autocast; operators run by the host's kernels on the
/// same memory, bit for bit as on the CPU. What the chip would do differently it does too: overflow saturates and sets a flag on 910A and
/// 310P, there is no float64, an operator without a kernel is named, memory of the device cannot be read by the host without a copy.
/// It does not simulate the speed of a chip.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/core/config_table.hpp"

namespace npu_train {

/// Section `sim_npu`.
struct SimNpuOptions {
  std::string soc = "910B1";             ///< 910A | 910B1 | 910B4 | 310P
  int64_t devices = 1;                   ///< 1 to 64
  std::string hbm = "32GiB";             ///< memory of each device; beyond it: out of memory
  std::string overflow_mode = "auto";    ///< auto (of the chip) | saturation | inf_nan (IEEE 754; 910B alone can be both)
  std::string unsupported_ops = "warn";  ///< operators without a kernel on the chip: warn (and run) | error | ignore
  static const ConfigTable<SimNpuOptions>& config_table();
  friend bool operator==(const SimNpuOptions&, const SimNpuOptions&) = default;
};

/// What happened on the simulated devices of this process so far.
struct SimNpuCounters {
  uint64_t ops = 0;             ///< operators that ran
  uint64_t cpu_fallbacks = 0;   ///< of these, those that a real chip would have run on the host
  uint64_t recompilations = 0;  ///< operators in shapes and dtypes that were not seen before
  uint64_t host_reads = 0;      ///< copies from device to host, .item() included
  uint64_t host_read_bytes = 0;
};

/// Loads and starts the simulator. Once per process: again with equal options it does nothing, with others it is Error(Usage).
/// Error(Device) if the shared object is not found or another NPU is loaded. The first use of the device `sim_npu` starts it with the
/// defaults unless it was started before.
void start_sim_npu(const SimNpuOptions& options);

/// Error(Device) unless it was started.
SimNpuCounters sim_npu_counters();

}  // namespace npu_train
