/// The power consumption of a machine and a device while a program runs, if it can be read.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "npu_train/core/clock.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train {

/// Energy between start() and stop().
struct EnergyReading {
  double seconds = 0;
  std::optional<double> host_joules{};    ///< all processor packages and their memory, for all running programs, not only this process
  std::optional<double> device_joules{};  ///< the complete device: mean power times seconds
};

/// Measures the energy of the complete machine, including other programs. Host: RAPL counters of Linux's powercap (package and dram zones;
/// https://docs.kernel.org/power/powercap/powercap.html), including their wrap-around. GPU: `nvidia-smi --query-gpu=power.draw`; NPU:
/// `npu-smi info -t power`. Both tools are polled twice per second in parallel with the work. They report an average over about a second,
/// so measurements of less than two seconds have no result. Call start() and stop() alternately on one thread.
class PowerMeter {
 public:
  /// `period`: time between two readings; 0: half a second if a device is polled, otherwise ten seconds.
  PowerMeter(HostView host, Device device, std::chrono::milliseconds period = std::chrono::milliseconds(0),
             std::shared_ptr<const Clock> clock = steady_clock());
  ~PowerMeter();
  PowerMeter(const PowerMeter&) = delete;
  PowerMeter& operator=(const PowerMeter&) = delete;

  void start();
  EnergyReading stop();

  /// Returns why the host's energy cannot be read; "" if it can.
  const std::string& host_why() const;
  /// Returns why the device's energy cannot be read; "" if it can, or if the device is the host itself.
  const std::string& device_why() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
