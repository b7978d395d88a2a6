/// Device work that is captured once and then launched as one unit, without the host queueing it operator by operator: CUDA graphs and
/// their counterparts on other devices.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "npu_train/device/device.hpp"

namespace npu_train {

/// A captured piece of work. A replay runs the same kernels on the same memory: tensors that the work reads must stay where they are and
/// are refilled by the caller, tensors that it made are overwritten. Each replay draws new random numbers. Anything that the host decided
/// during the capture (branches on values, numbers that it drew) stays as it was.
class DeviceGraph {
 public:
  /// Why `device` captures none; "" where it does.
  static std::string why_not(const Device& device);

  /// Captures what `work` queues, on a stream of its own; nothing of it is done until replay(). Error(Device) where the device captures
  /// none. Exceptions of `work` reach the caller, including libtorch's error for an action that cannot be captured: reading a value on the
  /// host, a copy from pageable memory.
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
