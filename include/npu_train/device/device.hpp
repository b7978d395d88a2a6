/// Which device a run uses, as people write it: "cpu", "cuda:1", "npu", "sim_npu".
#pragma once

#include <c10/core/Device.h>

#include <string>

// libtorch's own headers name c10::Device without its namespace. In a program that wrote `using namespace npu_train;` before them that name
// would be ambiguous with ours, unless the namespaces of those headers have it themselves.
namespace at {
using c10::Device;
}
namespace torch {
using c10::Device;
}

namespace npu_train {

/// A device by kind and index. A value: comparing and copying is free, naming one does not touch the hardware.
///
/// `kind` is "cpu", "cuda", "npu" (Ascend, by torch_npu), "sim_npu" (the simulated NPU) or a kind that the program added (add_backend). All
/// but the first two are libtorch's PrivateUse1, of which a process can have one.
struct Device {
  std::string kind = "cpu";
  int index = 0;

  /// The device as libtorch names it.
  c10::Device c10() const;

  /// "cpu", "cuda:0", "npu:1".
  std::string str() const;

  bool is_cpu() const { return kind == "cpu"; }

  /// Reads "cpu", "cuda", "cuda:1", "npu:0", "sim_npu". Does not check that the device exists. Error(Usage) with what was given and what
  /// is allowed for anything else ("auto" too: that is resolve_device's).
  static Device parse(const std::string& text);

  friend bool operator==(const Device&, const Device&) = default;
};

/// The device for a configuration's `device:`. "auto" gives the first of npu, cuda, cpu that is available (never sim_npu: a simulator is
/// used only if it is named). A named device that is not available is Error(Device), which names what is missing and what to do.
Device resolve_device(const std::string& text);

/// The kind of the device that a libtorch device belongs to. PrivateUse1 is the kind of the program that resolve_device() chose, else
/// "sim_npu" when the simulator is loaded, else "npu".
Device device_of(const c10::Device& device);

}  // namespace npu_train
