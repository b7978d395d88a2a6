/// Device work that is captured once and then launched as one unit, instead of operator by operator: CUDA graphs and their counterparts on
/// other devices.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// Captured device work. A replay runs the same kernels on the same memory: the caller refills, in place, the tensors that the work reads,
/// and the tensors that the work created are overwritten. Each replay draws new random numbers. Decisions that the host made during the
/// capture (branches on values, numbers that it drew) are fixed.
class DeviceGraph {
 public:
  /// Returns why `device` does not support capture; "" if it does.
  static std::string why_not(const Device& device);

  /// Captures the device work that `work` queues, on a stream of its own. Only replay() executes the captured work. Error(Device) if the
  /// device does not support capture. Exceptions of `work` reach the caller, including libtorch's errors for actions that cannot be
  /// captured, such as reading a value on the host or copying from pageable memory.
  DeviceGraph(const Device& device, const std::function<void()>& work);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  /// Queues the work on the current stream.
  void replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
