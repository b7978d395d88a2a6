// Facts about the Ascend NPUs of a machine and their software.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"
#include "tools/doctor/npu_smi.hpp"

namespace npu_train::detail {

inline constexpr const char* kAscend = "ascend";
inline constexpr const char* kManagerNodes[] = {"/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"};

struct AscendChipFacts {
  std::string prefix, family;
  bool bf16 = false;
  std::string overflow;  // result of an overflow: ieee | saturates | choice
  std::string pci;       // device number on the PCI bus, "0xd802"; "" if unknown, as in each field below
  std::string hdk, ops;  // names of the chip in the files of its driver and of CANN's operators: "Ascend-hdk-910b", "910b"
  std::string ranks;     // numbers of ranks on one machine that HCCL connects: "any", "1, 2, 4, 8"
  std::string sums;      // dtypes that HCCL adds: "int8, int32, int64, fp16, fp32"
};

// An installed CANN.
struct CannFacts {
  std::string home;  // "" if not installed
  bool from_environment = false;
  std::string version;  // "" if no file contains it
  std::string version_file;
  std::string operators;  // version of the package of operators; "" if no package has left a version file
  std::string set_env;    // script that sets its environment; "" if it does not exist
};

struct AscendFacts {
  std::vector<int> nodes;  // N of /dev/davinciN
  std::vector<std::string> pci;
  std::string driver;          // installation folder
  std::string driver_version;  // "" if the driver is not installed
  CommandResult smi_result;    // NotFound if npu-smi was not called
  NpuSmi smi;
  CannFacts cann;

  bool device() const { return !nodes.empty() || !pci.empty() || !driver_version.empty(); }
};

AscendFacts ascend_facts(const HostView& host);
CannFacts cann_facts(const HostView& host);

// Returns the version of the torch_npu that device npu would load; "" if it is not installed, or if no file contains its version.
std::string torch_npu_here(const HostView& host, const ProcessFacts& process);

// Looks up a chip by CANN's name or npu-smi's ("Ascend910B3", "910B3"). Cards of Atlas A3 are called only "Ascend910"; `physical_ids`
// distinguishes them from the first generation.
std::optional<AscendChipFacts> chip_facts(std::string name, bool physical_ids);
std::vector<std::string> chip_families();

// Returns the chip of this machine, as npu-smi names it. Without a driver, returns the chip of the first device on the PCI bus. nullopt if
// the chip is unknown.
std::optional<AscendChipFacts> chip_here(const AscendFacts& ascend);

// Returns the folders of LD_LIBRARY_PATH in their order, without empty entries.
std::vector<std::string> library_path(const HostView& host);
// Whether the path has a component of this name, as "/a/devlib/b" has "devlib".
bool has_part(const std::string& path, std::string_view name);

// Findings of the sources ascend_*_checks.cpp.
std::vector<Finding> driver_findings(const HostView& host, const AscendFacts& ascend, const ProcessFacts& process);
std::vector<Finding> cann_findings(const HostView& host, const AscendFacts& ascend, const ProcessFacts& process);
std::vector<Finding> torch_npu_findings(const HostView& host, const AscendFacts& ascend, const ProcessFacts& process);

}  // namespace npu_train::detail
