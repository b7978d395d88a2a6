/// What a machine and a device draw while something runs, where that can be read.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "npu_train/core/clock.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train {

/// Energy between start() and stop().
struct EnergyReading {
  double seconds = 0;
  std::optional<double> host_joules{};    ///< of all processor packages and their memory: of everything that ran, not of this process alone
  std::optional<double> device_joules{};  ///< of the whole device: mean power times seconds
};

/// The host by the RAPL counters of Linux's powercap (package and dram zones; https://docs.kernel.org/power/powercap/powercap.html), whose
/// wrap-around is heeded. A GPU by `nvidia-smi --query-gpu=power.draw`, an NPU by `npu-smi info -t power`, asked beside the work twice a
/// second: they tell an average of about a second, so that nothing is told of less than two seconds. Energy is that of the machine:
/// whatever else runs counts too. One thread calls start() and stop() in turn.
class PowerMeter {
 public:
  /// `period`: between two looks; 0: half a second where a device is asked, else ten.
  PowerMeter(HostView host, Device device, std::chrono::milliseconds period = std::chrono::milliseconds(0),
             std::shared_ptr<const Clock> clock = steady_clock());
  ~PowerMeter();
  PowerMeter(const PowerMeter&) = delete;
  PowerMeter& operator=(const PowerMeter&) = delete;

  void start();
  EnergyReading stop();

  /// Why the host's energy cannot be read; "" where it can.
  const std::string& host_why() const;
  /// The same of the device; "" too where the device is the host itself.
  const std::string& device_why() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
