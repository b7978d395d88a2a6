#include <algorithm>
#include <map>
#include <system_error>

#include "npu_train/core/text.hpp"
#include "tools/doctor/ascend_facts.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMuchMemory = 2;  // a card is busy if other processes use more than 1/kMuchMemory of its memory

std::string node_list(const AscendFacts& ascend) {
  std::vector<std::string> out;
  for (const int n : ascend.nodes) out.push_back("/dev/davinci" + std::to_string(n));
  return join(out);
}

std::string map_devices(const AscendFacts& ascend) {
  const auto first = ascend.nodes.empty() ? 0 : ascend.nodes.front();
  return "docker run --device=/dev/davinci" + std::to_string(first) +
         " --device=/dev/davinci_manager --device=/dev/devmm_svm --device=/dev/hisi_hdc";
}

Finding ascend_nodes_finding(const HostView& host, const AscendFacts& ascend) {
  std::vector<std::string> missing;
  if (ascend.nodes.empty()) missing.emplace_back("/dev/davinci0");
  for (const char* node : kManagerNodes)
    if (!host.exists(node)) missing.emplace_back(node);
  if (missing.empty())
    return {kAscend, "device nodes", Verdict::Ok,
            std::to_string(ascend.nodes.size()) + (ascend.nodes.size() == 1 ? " NPU" : " NPUs") + " in /dev",
            node_list(ascend) + ", davinci_manager, devmm_svm, hisi_hdc"};
  std::string seen = ascend.nodes.empty() ? "no NPU in /dev" : node_list(ascend);
  if (!ascend.pci.empty()) seen += "; on the PCI bus: " + join(ascend.pci);
  return {kAscend,
          "device nodes",
          Verdict::Fail,
          join(missing) + " missing: no program can use the NPU",
          seen,
          "in a container, map them: " + map_devices(ascend) + "; on the host, load the driver (install it, reboot; lsmod | grep drv_)"};
}

Finding permission_finding(const HostView& host, const AscendFacts& ascend) {
  std::vector<std::string> closed;
  std::vector<std::string> nodes(std::begin(kManagerNodes), std::end(kManagerNodes));
  for (const int n : ascend.nodes) nodes.push_back("/dev/davinci" + std::to_string(n));
  for (const auto& node : nodes)
    if (host.exists(node) && !host.may_use(host.path(node))) closed.push_back(node);
  const auto status = host.read("/proc/self/status").value_or("");
  const auto who = "user " + std::to_string(leading_number(value_of(status, "Uid", ':').value_or("")).value_or(-1)) + ", groups " +
                   value_of(status, "Groups", ':').value_or("unknown");
  if (closed.empty()) return {kAscend, "permissions", Verdict::Ok, "this user has access to the NPU's device nodes", who};
  return {kAscend,
          "permissions",
          Verdict::Fail,
          "this user has no read and write access to " + join(closed),
          who,
          "sudo usermod -aG HwHiAiUser $USER, then log in again; start a container with the group of the nodes (docker run "
          "--group-add $(stat -c %g /dev/davinci_manager))"};
}

Finding driver_version_finding(const AscendFacts& ascend) {
  if (ascend.driver_version.empty())
    return {kAscend,
            "driver",
            Verdict::Fail,
            "the NPU's driver was not found",
            ascend.driver + "/version.info has no line Version",
            "install the driver and firmware of the NPU (Ascend HDK); in a container, mount it: -v "
            "/usr/local/Ascend/driver:/usr/local/Ascend/driver:ro"};
  return {kAscend, "driver", Verdict::Ok, "driver " + ascend.driver_version, ascend.driver + "/version.info"};
}

Finding npu_smi_finding(const AscendFacts& ascend) {
  const auto& result = ascend.smi_result;
  const auto said = shortened(first_line(result.output));
  Finding f{kAscend, "npu-smi", Verdict::Ok,
            "lists " + std::to_string(ascend.smi.chips.size()) + (ascend.smi.chips.size() == 1 ? " chip" : " chips"),
            "npu-smi info, version " + (ascend.smi.version.empty() ? "unknown" : ascend.smi.version)};
  const auto as = [&](Verdict verdict, const std::string& finding, const std::string& fix) {
    return Finding{kAscend, "npu-smi", verdict, finding, said.empty() ? "it printed nothing" : "it printed: " + said, fix};
  };
  switch (result.end) {
    case CommandResult::End::NotFound:
      return as(
          Verdict::Warn, "npu-smi is not installed: health and processes of the NPU are unknown",
          "in a container, mount it: -v /usr/local/bin/npu-smi:/usr/local/bin/npu-smi:ro; on the host, it is installed with the driver");
    case CommandResult::End::TimedOut:
      return as(Verdict::Fail, "npu-smi does not respond: the driver or a device hangs",
                "check dmesg, end the processes on the NPU, then reset it (npu-smi set -t reset -i 0 -c 0, as root) or reboot");
    default:
      break;
  }
  if (result.output.find("dcmi") != std::string::npos || result.output.find("drvErr=87") != std::string::npos)
    return as(Verdict::Fail, "npu-smi cannot reach the driver",
              "the device nodes are missing or not accessible to this user: in a container, " + map_devices(ascend) +
                  "; on the host, sudo usermod -aG HwHiAiUser $USER");
  if (!result.ok())
    return as(Verdict::Fail, "npu-smi failed with exit code " + std::to_string(result.status),
              "check dmesg; reinstall the driver, or reboot");
  if (ascend.smi.chips.empty()) return as(Verdict::Warn, "npu-smi lists no chip in a known format", "run npu-smi info and read its output");
  return f;
}

// Reports the health that npu-smi prints.
Finding health_finding(const AscendFacts& ascend) {
  std::vector<std::string> sick, seen;
  Verdict verdict = Verdict::Ok;
  for (const auto& chip : ascend.smi.chips) {
    const auto name = "NPU " + std::to_string(chip.npu) + " chip " + std::to_string(chip.chip);
    const auto health = to_lower(chip.health);
    seen.push_back(name + " " + chip.name + " " + chip.health);
    if (health == "ok") continue;
    sick.push_back(name + " is " + chip.health);
    verdict = health == "warning" && verdict != Verdict::Fail ? Verdict::Warn : Verdict::Fail;
  }
  const auto evidence = shortened(join(seen), 400);
  if (sick.empty()) return {kAscend, "health", Verdict::Ok, "all chips are OK", evidence};
  return {kAscend,
          "health",
          verdict,
          join(sick),
          evidence,
          "npu-smi info -t health -i N prints the reason, npu-smi info -t ecc -i N the memory errors; exclude the chip with "
          "ASCEND_RT_VISIBLE_DEVICES, let an administrator reset it, or have it replaced"};
}

// Returns the processes that have a device node open, by the links in /proc. Only root sees the processes of other users.
std::map<int64_t, std::string> holders(const HostView& host) {
  std::map<int64_t, std::string> out;
  for (const auto& name : host.list("/proc")) {
    const auto pid = whole_number(name);
    if (!pid) continue;
    const auto folder = "/proc/" + name;
    for (const auto& fd : host.list(folder + "/fd")) {
      std::error_code none;
      const auto target = fs::read_symlink(host.path(folder + "/fd/" + fd), none).string();
      if (none || !target.starts_with("/dev/davinci") || !whole_number(target.substr(12))) continue;
      out[*pid] = first_line(host.read(folder + "/comm", 256).value_or("")) + " holds " + target;
      break;
    }
  }
  return out;
}

Finding processes_finding(const HostView& host, const AscendFacts& ascend, const ProcessFacts& process) {
  auto all = holders(host);
  for (const auto& p : ascend.smi.processes)
    all[p.pid] = (p.name.empty() ? "a process" : p.name) + " on NPU " + std::to_string(p.npu) + ", " + std::to_string(p.memory) + " MB";
  all.erase(process.pid);
  std::vector<std::string> seen, full;
  for (const auto& [pid, what] : all) seen.push_back("pid " + std::to_string(pid) + " " + what);
  for (const auto& chip : ascend.smi.chips)
    if (chip.memory_total > 0 && chip.memory_used > chip.memory_total / kMuchMemory) full.push_back("NPU " + std::to_string(chip.npu));
  if (all.empty() && full.empty()) return {kAscend, "processes", Verdict::Ok, "no other process holds an NPU", "npu-smi info, /proc/*/fd"};
  if (all.empty())
    return {kAscend,
            "processes",
            Verdict::Warn,
            "much of the memory of " + join(full) + " is used by processes that are not visible here",
            "npu-smi info lists none",
            "run npu-smi info on the host: another container may hold the NPU"};
  return {kAscend,
          "processes",
          Verdict::Warn,
          std::to_string(all.size()) + (all.size() == 1 ? " other process holds" : " other processes hold") + " an NPU",
          shortened(join(seen, "; "), 400),
          "end your own processes (kill PID; a hung one keeps the device until then), or select a free NPU with "
          "ASCEND_RT_VISIBLE_DEVICES"};
}

}  // namespace

std::vector<Finding> driver_findings(const HostView& host, const AscendFacts& ascend, const ProcessFacts& process) {
  std::vector<Finding> out = {ascend_nodes_finding(host, ascend), permission_finding(host, ascend), driver_version_finding(ascend),
                              npu_smi_finding(ascend)};
  if (!ascend.smi.chips.empty()) out.push_back(health_finding(ascend));
  out.push_back(processes_finding(host, ascend, process));
  return out;
}

}  // namespace npu_train::detail
