// Finds cards on the PCI bus, with or without a driver.
#pragma once

#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"

namespace npu_train::detail {

// Returns addresses with device numbers ("0000:c1:00.0 (0xd802)") of the cards of `vendor` whose class begins with one of `classes`; at
// most 64.
std::vector<std::string> pci_devices(const HostView& host, const std::string& vendor, const std::vector<std::string>& classes);

}  // namespace npu_train::detail
