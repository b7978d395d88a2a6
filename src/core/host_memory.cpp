#include "npu_train/core/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

namespace npu_train {
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

}  // namespace npu_train
