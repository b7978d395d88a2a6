// Replaces the machine's CANN by npu_train's simulated one (docs/sim_cann.md).
#pragma once

namespace npu_train::detail {

// Loads the simulated libraries into this process if NPU_TRAIN_SIM_CANN is set (1, or a folder), before torch_npu looks for CANN.
// Error(Device) if they are not found, or if the process has another CANN.
void load_sim_cann_if_asked();

}  // namespace npu_train::detail
