// The simulated CANN of npu_train (docs/sim_cann.md) in place of the machine's.
#pragma once

namespace npu_train::detail {

// If NPU_TRAIN_SIM_CANN is set (1, or a folder), loads its libraries for this process, before torch_npu looks for CANN. Error(Device) if
// they are not found, or if the process has another CANN.
void load_sim_cann_if_asked();

}  // namespace npu_train::detail
