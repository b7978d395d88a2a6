#include "doctor/cgroup.hpp"

#include <algorithm>
#include <vector>

#include "doctor/parse.hpp"

namespace npu_train::detail {
namespace {

// A limit of version 1 at or above this is none: the kernel writes the largest multiple of a page.
constexpr int64_t kNoLimit = int64_t{1} << 60;

struct Hierarchy {
  std::string mount, path;  // "/sys/fs/cgroup", "/docker/12ab"
};

// The one that holds `controller` ("" for version 2) by /proc/self/cgroup: lines "number:controllers:path".
std::optional<Hierarchy> hierarchy(const HostView& host, std::string_view controller) {
  for (const auto& line : split(host.read("/proc/self/cgroup").value_or(""), '\n')) {
    const auto first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const auto path = line.substr(second + 1);
    const auto names = split(controllers, ',');
    if (std::find(names.begin(), names.end(), controller) == names.end()) continue;
    if (controller.empty()) return Hierarchy{"/sys/fs/cgroup", path};
    for (const auto& mount : {"/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/" + std::string(controller)})
      if (host.is_folder(mount)) return Hierarchy{mount, path};
  }
  return std::nullopt;
}

// Its folders from the group of the process to the root.
std::vector<std::string> folders(const Hierarchy& h) {
  std::vector<std::string> out;
  auto path = h.path.find("..") == std::string::npos ? h.path : "/";
  while (path.size() > 1 && out.size() < 64) {
    out.push_back(h.mount + path);
    path.resize(path.rfind('/'));
  }
  out.push_back(h.mount);
  return out;
}

std::optional<int64_t> number_in(const HostView& host, const std::string& file) {
  const auto text = host.read(file, 4096);
  return text ? leading_number(*text) : std::nullopt;
}

void take_cpus(CgroupLimits& out, std::optional<int64_t> quota, std::optional<int64_t> period, const std::string& file) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
  if (out.cpus && *out.cpus <= cpus) return;
  out.cpus = cpus;
  out.cpu_file = file;
}

void take_memory(const HostView& host, CgroupLimits& out, const std::string& folder, const char* limit, const char* used,
                 const char* droppable) {
  const auto bytes = number_in(host, folder + limit);  // "max" is no number
  if (!bytes || *bytes <= 0 || *bytes >= kNoLimit || (out.memory && *out.memory <= *bytes)) return;
  out.memory = bytes;
  out.memory_file = folder + limit;
  int64_t inactive = 0;
  for (const auto& line : split(host.read(folder + "/memory.stat").value_or(""), '\n'))
    if (line.starts_with(std::string(droppable) + " "))
      inactive = leading_number(line.substr(std::string_view(droppable).size())).value_or(0);
  out.memory_used = std::max<int64_t>(0, number_in(host, folder + used).value_or(0) - inactive);
}

void read_version_2(const HostView& host, CgroupLimits& out) {
  const auto found = hierarchy(host, "");
  if (!found) return;
  const auto all = folders(*found);
  // memory.events counts what is below too: of the group of the process alone
  for (const auto& line : split(host.read(all.front() + "/memory.events", 4096).value_or(""), '\n'))
    if (line.starts_with("oom_kill ")) out.oom_kills = leading_number(line.substr(9)).value_or(0);
  for (const auto& folder : all) {
    const auto cpu = words(host.read(folder + "/cpu.max", 4096).value_or(""));
    if (cpu.size() == 2) take_cpus(out, whole_number(cpu[0]), whole_number(cpu[1]), folder + "/cpu.max");
    take_memory(host, out, folder, "/memory.max", "/memory.current", "inactive_file");
  }
}

void read_version_1(const HostView& host, CgroupLimits& out) {
  if (const auto cpu = hierarchy(host, "cpu"))
    for (const auto& folder : folders(*cpu))
      take_cpus(out, number_in(host, folder + "/cpu.cfs_quota_us"), number_in(host, folder + "/cpu.cfs_period_us"),
                folder + "/cpu.cfs_quota_us");
  if (const auto memory = hierarchy(host, "memory"))
    for (const auto& folder : folders(*memory))
      take_memory(host, out, folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
}

}  // namespace

CgroupLimits cgroup_limits(const HostView& host) {
  CgroupLimits out;
  read_version_2(host, out);
  read_version_1(host, out);
  return out;
}

}  // namespace npu_train::detail
