#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#include "npu_train/core/error.hpp"
#include "npu_train/data/loader.hpp"

namespace npu_train {
namespace {

/// Cores that a line of cpu.max allows ("150000 100000" is 1.5, rounded up), or 0 for no limit.
int64_t quota(const std::string& file) {
  std::ifstream in(file);
  std::string limit;
  double period = 0;
  if (!(in >> limit >> period) || limit == "max" || period <= 0) return 0;
  double value = 0;
  const auto [end, error] = std::from_chars(limit.data(), limit.data() + limit.size(), value);
  return error == std::errc() && value > 0 ? static_cast<int64_t>(std::ceil(value / period)) : 0;
}

/// The path of this process in the unified hierarchy ("/user.slice/..."); "" when there is none.
std::string own_group() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return {};
}

}  // namespace

int64_t cpu_count() {
  int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max<int64_t>(1, CPU_COUNT(&set));
  // Every group above may limit, too.
  for (std::string group = own_group();; group = group.substr(0, group.find_last_of('/'))) {
    if (const int64_t limit = quota("/sys/fs/cgroup" + group + "/cpu.max"); limit > 0) cores = std::min(cores, limit);
    if (group.empty() || group == "/") break;
  }
  return cores;
}

int64_t parse_num_workers(const std::string& text) {
  if (text == "auto") return std::min<int64_t>(16, cpu_count());
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= 1024, ErrorKind::Usage, "num_workers", "'", text,
        "' is neither auto nor a number from 0 to 1024");
  return value;
}

}  // namespace npu_train
