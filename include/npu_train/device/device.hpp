/// The device of a run, as a configuration names it: "cpu", "cuda:1", "npu", "sim_npu".
#pragma once

#include <c10/core/Device.h>

#include <string>

// libtorch's headers write Device for c10::Device. In a program with `using namespace npu_train;`, that name would be ambiguous with our
// Device, unless the namespaces of those headers declare it themselves.
namespace at {
using c10::Device;
}
namespace torch {
using c10::Device;
}

namespace npu_train {

/// A device by kind and index: a plain value that never accesses the hardware.
///
/// `kind` is "cpu", "cuda", "npu" (Ascend, through torch_npu), "sim_npu" (the simulated NPU) or a kind added by the program (add_backend).
/// All but cpu and cuda are libtorch's PrivateUse1, which only one kind per process can have.
struct Device {
  std::string kind = "cpu";
  int index = 0;

  /// Returns the device as libtorch's type.
  c10::Device c10() const;

  /// Returns "cpu", "cuda:0", "npu:1".
  std::string str() const;

  bool is_cpu() const { return kind == "cpu"; }

  /// Parses "cpu", "cuda", "cuda:1", "npu:0", "sim_npu" without checking that the device exists. Error(Usage) for anything else, including
  /// "auto", which resolve_device() accepts.
  static Device parse(const std::string& text);

  friend bool operator==(const Device&, const Device&) = default;
};

/// Returns the device for a configuration's `device:`. "auto" selects the first available one of npu, cuda, cpu (never sim_npu: a simulator
/// is used only if named). Error(Device) if a named device is not available; the message says what is missing and what to do.
Device resolve_device(const std::string& text);

/// Converts a libtorch device to a Device. For a PrivateUse1 device, the kind is the added one (add_backend) that resolve_device() has
/// chosen. If it has chosen none, the kind is "sim_npu" if the simulator is loaded, otherwise "npu".
Device device_of(const c10::Device& device);

}  // namespace npu_train
