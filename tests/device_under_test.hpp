// The device on which tests of the trainer run: NPU_TRAIN_TEST_DEVICE, or the CPU.
#pragma once

#include <cstdlib>

#include "npu_train/device/device.hpp"

namespace npu_train::testing {

inline const Device& device_under_test() {
  static const Device device = [] {
    const char* set = std::getenv("NPU_TRAIN_TEST_DEVICE");
    return resolve_device(set != nullptr && *set != '\0' ? set : "cpu");
  }();
  return device;
}

}  // namespace npu_train::testing
