#include "testing.hpp"

#include "npu_train/core/host_memory.hpp"

#include <sys/resource.h>

#include <limits>
#include <map>
#include <optional>
#include <string>

using namespace npu_train;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

int64_t free_in(const std::map<std::string, std::string>& tree) {
  return free_host_bytes([&](const std::string& path) {
    const auto found = tree.find(path);
    return found == tree.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

TEST_CASE("the tightest of the machine, with its swap space, and of the control groups") {
  std::map<std::string, std::string> tree = {
      {"/proc/meminfo", "MemTotal:  33554432 kB\nMemFree:  1048576 kB\nMemAvailable:    8388608 kB\nSwapFree:  2097152 kB\n"}};
  CHECK(free_in(tree) == 10 * kGiB);
  tree["/proc/self/cgroup"] = "0::/box\n";
  tree["/sys/fs/cgroup/box/memory.max"] = std::to_string(4 * kGiB) + "\n";
  tree["/sys/fs/cgroup/box/memory.current"] = std::to_string(3 * kGiB) + "\n";
  CHECK(free_in(tree) == kGiB);
  tree["/sys/fs/cgroup/box/memory.current"] = std::to_string(5 * kGiB) + "\n";
  CHECK(free_in(tree) == 0);
  CHECK(free_in({}) == std::numeric_limits<int64_t>::max());
  CHECK(free_in({{"/proc/meminfo", "MemAvailable: many kB\n"}}) == std::numeric_limits<int64_t>::max());
}

TEST_CASE("the limit of private memory counts, less the bytes that the process has of it") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_DATA, &before) == 0);
  const auto limited = rlimit{static_cast<rlim_t>(5 * kGiB), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_DATA, &limited) == 0);
  const auto machine =
      free_in({{"/proc/meminfo", "MemAvailable: 33554432 kB\n"}, {"/proc/self/status", "VmPeak: 9 kB\nVmData:\t 3145728 kB\n"}});
  const auto own = free_host_bytes();
  ::setrlimit(RLIMIT_DATA, &before);
  CHECK(machine == 2 * kGiB);
  CHECK(own > 0);
  CHECK(own < 5 * kGiB);
}
