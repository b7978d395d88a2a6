#include "npu_train/core/host.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

#include "npu_train/core/message_text.hpp"

namespace npu_train {
namespace {

/// Least value that means "no limit": for an unset limit, version 1 reports the largest multiple of the page size.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<std::string> file_of_this_machine(const std::string& path) {
  std::ifstream in(path);
  std::string text(65536, '\0');
  if (!in || !in.read(text.data(), static_cast<std::streamsize>(text.size())).eof()) return std::nullopt;
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

/// Parses the number at the beginning of the text; nullopt for "max".
std::optional<int64_t> number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() ? std::optional(out) : std::nullopt;
}

/// Counts the processors in a list like "0-3,8"; nullopt if it is empty or malformed.
std::optional<int64_t> count_of(const std::string& list) {
  int64_t count = 0;
  std::istringstream parts(list.substr(0, list.find('\n')));
  for (std::string part; std::getline(parts, part, ',');) {
    const auto first = number(part), last = part.find('-') == std::string::npos ? first : number(part.substr(part.find('-') + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > 65'535) return std::nullopt;
    count += *last - *first + 1;
  }
  return count > 0 ? std::optional(count) : std::nullopt;
}

class Reader {
 public:
  explicit Reader(const SystemFiles& files)
      : files_(files ? files : SystemFiles(file_of_this_machine)), groups_(text("/proc/self/cgroup")) {}

  CgroupLimits read() {
    const auto own = folders("");
    if (!own.empty()) out_.oom_kills = entry(own.front() + "/memory.events", "oom_kill").value_or(0);  // includes the child groups
    for (const auto& folder : own) {
      std::istringstream cpu_max(text(folder + "/cpu.max"));
      std::string quota, period;
      if (cpu_max >> quota >> period) take_cpus(number(quota), number(period), folder + "/cpu.max");
      take_cpuset(folder + "/cpuset.cpus.effective");
      take_memory(folder, "/memory.max", "/memory.current", "inactive_file");
    }
    for (const auto& folder : folders("cpu"))
      take_cpus(number(text(folder + "/cpu.cfs_quota_us")), number(text(folder + "/cpu.cfs_period_us")), folder + "/cpu.cfs_quota_us");
    for (const auto& folder : folders("cpuset")) take_cpuset(folder + "/cpuset.effective_cpus");
    for (const auto& folder : folders("memory"))
      take_memory(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file");
    return out_;
  }

 private:
  std::string text(const std::string& path) const { return files_(path).value_or(""); }

  /// Returns the number after `name` in a file of lines "name number".
  std::optional<int64_t> entry(const std::string& path, const std::string& name) const {
    std::istringstream lines(text(path));
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(name + " ")) return number(line.substr(name.size()));
    return std::nullopt;
  }

  /// Returns the folders with the limits of `controller` ("": version 2), from the group of the process up to the root. /proc/self/cgroup
  /// has lines "number:controllers:path".
  std::vector<std::string> folders(const std::string& controller) const {
    std::vector<std::string> out;
    std::istringstream lines(groups_);
    for (std::string line; std::getline(lines, line) && out.empty();) {
      const auto first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
      if (second == std::string::npos) continue;
      const auto controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
      if (("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
      if (controller.empty()) return up("/sys/fs/cgroup", path);
      out = up("/sys/fs/cgroup/" + controllers, path);
      if (controllers == controller) break;
      const auto by_link = up("/sys/fs/cgroup/" + controller, path);
      out.insert(out.end(), by_link.begin(), by_link.end());
    }
    return out;
  }

  static std::vector<std::string> up(const std::string& mount, std::string path) {
    std::vector<std::string> out;
    if (path.find("..") != std::string::npos) path = "/";  // the group is outside of this process's namespace
    for (; path.size() > 1 && path[0] == '/' && out.size() < 64; path.resize(path.rfind('/'))) out.push_back(mount + path);
    out.push_back(mount);
    return out;
  }

  void take_cpus(std::optional<int64_t> quota, std::optional<int64_t> period, const std::string& file) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
    if (out_.cpus && *out_.cpus <= cpus) return;
    out_.cpus = cpus;
    out_.cpu_file = file;
  }

  void take_cpuset(const std::string& file) {
    const auto count = count_of(text(file));
    if (count && (!out_.cpuset || *count < *out_.cpuset)) out_.cpuset = count;
  }

  void take_memory(const std::string& folder, const char* limit, const char* used, const char* droppable) {
    const auto bytes = number(text(folder + limit));
    if (!bytes || *bytes <= 0 || *bytes >= kNoLimit || (out_.memory && *out_.memory <= *bytes)) return;
    out_.memory = bytes;
    out_.memory_file = folder + limit;
    const auto inactive = entry(folder + "/memory.stat", droppable).value_or(0);
    out_.memory_used = std::max<int64_t>(0, number(text(folder + used)).value_or(0) - inactive);
  }

  SystemFiles files_;
  std::string groups_;  // content of /proc/self/cgroup
  CgroupLimits out_;
};

}  // namespace

int64_t CgroupLimits::usable_cpus(int64_t processors) const {
  if (cpuset) processors = std::min(processors, *cpuset);
  if (cpus) processors = std::min(processors, static_cast<int64_t>(std::ceil(std::min(*cpus, 1e9) - 1e-6)));
  return std::max<int64_t>(1, processors);
}

CgroupLimits cgroup_limits(const SystemFiles& files) { return Reader(files).read(); }

namespace {

constexpr int64_t kNoLimitOfHost = std::numeric_limits<int64_t>::max();

// Returns the soft limit of the line "Max data size  SOFT  HARD  bytes"; nullopt if it is "unlimited".
std::optional<int64_t> private_limit(const std::string& limits) {
  constexpr std::string_view kName = "Max data size";
  const auto at = limits.find(kName);
  if (at == std::string::npos) return std::nullopt;
  std::istringstream line(limits.substr(at + kName.size()));
  int64_t bytes = 0;
  return line >> bytes ? std::optional(bytes) : std::nullopt;
}

}  // namespace

std::optional<int64_t> kib_value(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  int64_t kib = 0;
  for (std::string name, rest; lines >> name; std::getline(lines, rest))
    if (name == key + ":") return lines >> kib && kib >= 0 && kib <= (int64_t{1} << 50) ? std::optional(kib * 1024) : std::nullopt;
  return std::nullopt;
}

int64_t free_host_bytes(const SystemFiles& files) {
  const auto text = [&](const char* path) {
    if (files) return files(path).value_or("");
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  };
  int64_t out = kNoLimitOfHost;
  const auto machine = text("/proc/meminfo");
  if (const auto available = kib_value(machine, "MemAvailable")) out = *available + kib_value(machine, "SwapFree").value_or(0);
  if (const auto group = cgroup_limits(files); group.memory) out = std::min(out, *group.memory - group.memory_used);
  if (const auto limit = private_limit(text("/proc/self/limits")))
    out = std::min(out, *limit - kib_value(text("/proc/self/status"), "VmData").value_or(0));
  return std::max<int64_t>(0, out);
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string out;
  for (std::string argument; std::getline(file, argument, '\0');) out += (out.empty() ? "" : " ") + shell_word(argument);
  return out;
}

}  // namespace npu_train
