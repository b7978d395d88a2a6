#include "testing.hpp"

#include "npu_train/core/host_memory.hpp"

#include <sys/resource.h>

#include <fstream>
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

/// Returns the private memory of this process, which is terabytes under a sanitizer.
int64_t has_already() {
  int64_t kib = 0;
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("VmData:")) kib = std::stoll(line.substr(7));
  REQUIRE(kib > 0);
  return kib * 1024;
}

}  // namespace

TEST_CASE("lines of /proc files") {
  CHECK(kib_value("VmPeak:\t 5 kB\nVmRSS:\t  123 kB\n", "VmRSS") == 123 * 1024);
  for (const char* text : {"", "VmPeak:\t 5 kB\n", "VmRSS:", "VmRSS:\t kB\n", "VmRSS: -1 kB\n", "VmRSS: 1125899906842625 kB\n"})
    CHECK_FALSE(kib_value(text, "VmRSS"));
}

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
  std::map<std::string, std::string> tree = {{"/proc/meminfo", "MemAvailable: 33554432 kB\n"},
                                             {"/proc/self/status", "VmPeak: 9 kB\nVmData:\t 3145728 kB\n"}};
  const auto free_below = [&](const std::string& limit) {
    tree["/proc/self/limits"] =
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max file size             4096                 4096                 bytes     \n"
        "Max data size             " +
        limit + "            unlimited            bytes     \n";
    return free_in(tree);
  };
  CHECK(free_below("5368709120") == 2 * kGiB);
  CHECK(free_below("2147483648") == 0);
  CHECK(free_below("0") == 0);
  CHECK(free_below("unlimited") == 32 * kGiB);
}

TEST_CASE("a limit that was set on this process is seen") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_DATA, &before) == 0);
  // The limit exceeds the memory that the process has: below that, a sanitizer could allocate nothing and would end the process.
  const auto limited = rlimit{static_cast<rlim_t>(has_already() + kGiB), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_DATA, &limited) == 0);
  const auto bytes = free_host_bytes();
  ::setrlimit(RLIMIT_DATA, &before);
  CHECK(bytes > 0);
  CHECK(bytes < 2 * kGiB);
}
