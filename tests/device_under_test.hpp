// The device on which tests of the trainer run: the one that NPU_TRAIN_TEST_DEVICE names, or the CPU.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "npu_train/device/backend.hpp"
#include "npu_train/device/device.hpp"

namespace npu_train::testing {

inline std::string name_of_device_under_test() {
  const char* set = std::getenv("NPU_TRAIN_TEST_DEVICE");
  return set != nullptr && *set != '\0' ? set : "cpu";
}

/// If the device is a GPU and there is none, ends the program before the first test case with status 77, which ctest counts as skipped.
inline const bool kNotSkipped = [] {
  const auto& cuda = backend_of({"cuda", 0});
  if (!name_of_device_under_test().starts_with("cuda") || cuda.is_available()) return true;
  std::printf("skipped: no CUDA GPU: %s\n", cuda.why_not().c_str());
  std::fflush(stdout);
  std::_Exit(77);
}();

inline const Device& device_under_test() {
  static const Device device = resolve_device(name_of_device_under_test());
  return device;
}

}  // namespace npu_train::testing
