#include "tools/doctor/pci.hpp"

#include <algorithm>

#include "tools/doctor/parse.hpp"

namespace npu_train::detail {

std::vector<std::string> pci_devices(const HostView& host, const std::string& vendor, const std::vector<std::string>& classes) {
  const std::string folder = "/sys/bus/pci/devices";
  std::vector<std::string> out;
  for (const auto& address : host.list(folder)) {
    const auto value = [&](const char* file) { return first_line(host.read(folder + "/" + address + "/" + file, 64).value_or("")); };
    if (out.size() >= 64) break;
    if (value("vendor") != vendor) continue;
    const auto kind = value("class");
    if (std::any_of(classes.begin(), classes.end(), [&](const std::string& c) { return kind.starts_with(c); }))
      out.push_back(address + " (" + value("device") + ")");
  }
  return out;
}

}  // namespace npu_train::detail
