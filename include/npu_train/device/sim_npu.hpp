/// The simulated NPU: behaves like an Ascend NPU, but uses the memory and cores of the host, so that NPU training can be developed and
/// tested on a laptop. `device: sim_npu` loads it; other processes contain no part of it.
///
/// It has devices with their own limited memory, streams, events, generators and autocast; the host's kernels run the operators, with the
/// same bits as on the CPU. It reproduces differences of the chip: on 910A and 310P overflow saturates and sets a flag; fp64 is missing;
/// operators without a kernel are reported; the host cannot read device memory without a copy. It does not simulate the speed of a chip.
#pragma once

#include <cstdint>
#include <string>

#include "npu_train/core/config_table.hpp"

namespace npu_train {

/// Section `sim_npu`.
struct SimNpuOptions {
  std::string soc = "910B1";             ///< 910A | 910B1 | 910B4 | 310P
  int64_t devices = 1;                   ///< 1 to 64
  std::string hbm = "32GiB";             ///< memory of each device; exceeding it is an out-of-memory error
  std::string overflow_mode = "auto";    ///< auto (the chip's default) | saturation | inf_nan (IEEE 754; only 910B supports both)
  std::string unsupported_ops = "warn";  ///< operators without a kernel on the chip: warn (and run them) | error | ignore
  /// Returns `hbm` in bytes. Error(Usage) if it is not a size.
  int64_t hbm_bytes() const;
  static const ConfigTable<SimNpuOptions>& config_table();
  friend bool operator==(const SimNpuOptions&, const SimNpuOptions&) = default;
};

/// Counts of events on the simulated devices of this process so far.
struct SimNpuCounters {
  uint64_t ops = 0;             ///< operators executed
  uint64_t cpu_fallbacks = 0;   ///< of these, operators that a real chip would run on the host
  uint64_t recompilations = 0;  ///< operators with new shapes or dtypes
  uint64_t host_reads = 0;      ///< copies from device to host, including .item()
  uint64_t host_read_bytes = 0;
};

/// Loads and starts the simulator, once per process. Another call with equal options has no effect; with other options it is an
/// Error(Usage). Error(Device) if the shared object is not found or if another NPU is loaded. If the simulator has not been started, the
/// first use of the device `sim_npu` starts it with the defaults.
void start_sim_npu(const SimNpuOptions& options);

/// Error(Device) unless the simulator was started.
SimNpuCounters sim_npu_counters();

}  // namespace npu_train
