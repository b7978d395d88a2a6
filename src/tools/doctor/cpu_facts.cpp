#include "tools/doctor/cpu_facts.hpp"

#include "tools/doctor/parse.hpp"

namespace npu_train::detail {
namespace {

// Returns the model of an ARM core, which reports only numbers. Names are known for common hosts of NPUs.
std::string arm_model(std::string_view cpuinfo) {
  const auto maker = value_of(cpuinfo, "CPU implementer", ':').value_or(""), part = value_of(cpuinfo, "CPU part", ':').value_or("");
  if (maker.empty()) return "";
  std::string name = "ARM " + maker + " " + part;
  if (maker == "0x48") name = "HiSilicon " + part + (part == "0xd01" ? " (Kunpeng 920)" : "");
  if (maker == "0x41") name = "ARM " + part + (part == "0xd0c" ? " (Neoverse N1)" : part == "0xd40" ? " (Neoverse V1)" : "");
  return name;
}

}  // namespace

int CpuFacts::usable() const {
  return static_cast<int>(limits.usable_cpus(allowed && !allowed->empty() ? static_cast<int64_t>(allowed->size()) : online));
}

CpuFacts cpu_facts(const HostView& host) {
  CpuFacts out;
  const auto cpuinfo = host.read("/proc/cpuinfo", size_t{16} << 20).value_or("");  // the file has 2 KiB per processor
  for (const auto& line : split(cpuinfo, '\n'))
    if (line.starts_with("processor") && line.find(':') != std::string::npos && trimmed(line.substr(0, line.find(':'))) == "processor")
      ++out.online;
  out.model = value_of(cpuinfo, "model name", ':').value_or("");
  if (out.model.empty()) out.model = arm_model(cpuinfo);
  for (const char* key : {"flags", "Features"})
    for (auto& flag : words(value_of(cpuinfo, key, ':').value_or(""))) out.flags.insert(std::move(flag));
  if (const auto list = value_of(host.read("/proc/self/status").value_or(""), "Cpus_allowed_list", ':')) out.allowed = number_list(*list);
  out.limits = cgroup_limits([&](const std::string& path) { return host.read(path); });
  const std::string nodes = "/sys/devices/system/node";
  for (const auto& name : host.list(nodes)) {
    if (!name.starts_with("node") || !whole_number(name.substr(4))) continue;
    auto cpus = number_list(host.read(nodes + "/" + name + "/cpulist").value_or(""));
    if (cpus && !cpus->empty()) out.nodes.push_back(std::move(*cpus));
  }
  return out;
}

}  // namespace npu_train::detail
