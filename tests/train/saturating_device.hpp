// A device on which an overflow gives the largest number and raises a flag: a simulated Ascend 910A.
#pragma once

#include <cstdlib>

#include "npu_train/device/sim_npu.hpp"

namespace npu_train::testing {

/// Puts the Toy objects of this process on the device.
inline void use_910a() {
  ::setenv("NPU_TRAIN_TEST_DEVICE", "sim_npu", 1);
  start_sim_npu({.soc = "910A"});
}

}  // namespace npu_train::testing
