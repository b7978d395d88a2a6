/// The power consumption of a machine and a device while a program runs, if it can be read.
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
  std::optional<double> host_joules{};    ///< of all processor packages and their memory: of all running programs, not only of this process
  std::optional<double> device_joules{};  ///< of the complete device: mean power times seconds
};

/// The host through the RAPL counters of Linux's powercap (package and dram zones; https://docs.kernel.org/power/powercap/powercap.html),
/// including their wrap-around. A GPU through `nvidia-smi --query-gpu=power.draw`, an NPU through `npu-smi info -t power`, polled twice per
/// second in parallel with the work: they return an average over about a second, so nothing is reported for less than two seconds. Energy
/// is that of the machine, including other programs. One thread calls start() and stop() alternately.
class PowerMeter {
 public:
  /// `period`: time between two readings; 0: half a second if a device is polled, else ten seconds.
  PowerMeter(HostView host, Device device, std::chrono::milliseconds period = std::chrono::milliseconds(0),
             std::shared_ptr<const Clock> clock = steady_clock());
  ~PowerMeter();
  PowerMeter(const PowerMeter&) = delete;
  PowerMeter& operator=(const PowerMeter&) = delete;

  void start();
  EnergyReading stop();

  /// The reason why the host's energy cannot be read; "" if it can.
  const std::string& host_why() const;
  /// The same for the device; also "" if the device is the host itself.
  const std::string& device_why() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
