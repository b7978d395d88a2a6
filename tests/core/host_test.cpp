#include "testing.hpp"

#include <sys/resource.h>

#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "npu_train/core/host.hpp"
#include "npu_train/core/process.hpp"

using namespace npu_train;

using npu_train::testing::has;

TEST_CASE("the name of the machine is that of uname") {
  const auto uname = run_command({"uname", "-n"});
  REQUIRE(uname.ok());
  CHECK(host_name() + "\n" == uname.output);
}

namespace {

using Tree = std::map<std::string, std::string>;

CgroupLimits limits_in(const Tree& tree) {
  return cgroup_limits([&](const std::string& path) {
    const auto found = tree.find(path);
    return found == tree.end() ? std::nullopt : std::optional(found->second);
  });
}

/// A Kubernetes pod under cgroup version 2: the container's group is below the pod's group, which is below the node's group.
Tree pod() {
  return {{"/proc/self/cgroup", "0::/kubepods/pod1/box\n"},
          {"/sys/fs/cgroup/kubepods/pod1/box/cpu.max", "max 100000\n"},
          {"/sys/fs/cgroup/kubepods/pod1/cpu.max", "350000 100000\n"},
          {"/sys/fs/cgroup/kubepods/cpu.max", "6400000 100000\n"},
          {"/sys/fs/cgroup/kubepods/pod1/box/memory.max", "8589934592\n"},
          {"/sys/fs/cgroup/kubepods/pod1/memory.max", "max\n"},
          {"/sys/fs/cgroup/kubepods/memory.max", "17179869184\n"}};
}

/// A Docker container under cgroup version 1, in a namespace in which the path of its own group does not exist.
Tree docker() {
  return {{"/proc/self/cgroup",
           "12:memory:/docker/12ab\n7:cpuset:/docker/12ab\n4:cpu,cpuacct:/docker/12ab\n1:name=systemd:/docker/12ab\n0::/\n"},
          {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"},
          {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
          {"/sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-3,8,10-11\n"},
          {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"},
          {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "600000000\n"},
          {"/sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 100000000\n"}};
}

}  // namespace

TEST_CASE("version 2: the tightest limit of the groups above counts, 'max' is none") {
  auto tree = pod();
  CHECK(limits_in(tree).cpus == 3.5);
  CHECK(limits_in(tree).cpu_file == "/sys/fs/cgroup/kubepods/pod1/cpu.max");
  CHECK(limits_in(tree).memory == int64_t{8} << 30);
  CHECK(limits_in(tree).memory_file == "/sys/fs/cgroup/kubepods/pod1/box/memory.max");
  CHECK(limits_in(tree).usable_cpus(64) == 4);
  CHECK(limits_in(tree).usable_cpus(3) == 3);
  tree["/sys/fs/cgroup/kubepods/pod1/box/cpu.max"] = "50000 100000\n";
  tree["/sys/fs/cgroup/memory.max"] = "4294967296\n";
  CHECK(limits_in(tree).cpus == 0.5);
  CHECK(limits_in(tree).usable_cpus(64) == 1);
  CHECK(limits_in(tree).memory_file == "/sys/fs/cgroup/memory.max");
  for (const char* file :
       {"/sys/fs/cgroup/kubepods/pod1/box/cpu.max", "/sys/fs/cgroup/kubepods/pod1/cpu.max", "/sys/fs/cgroup/kubepods/cpu.max"})
    tree[file] = "max 100000\n";
  CHECK_FALSE(limits_in(tree).cpus.has_value());
  CHECK(limits_in(tree).cpu_file.empty());
  CHECK(limits_in(tree).usable_cpus(64) == 64);
}

TEST_CASE("version 2: memory in use without what can be dropped, kills of the own group") {
  auto tree = pod();
  const std::string box = "/sys/fs/cgroup/kubepods/pod1/box";
  tree[box + "/memory.current"] = "5000000000\n";
  tree[box + "/memory.stat"] = "anon 1\ninactive_file 2000000000\n";
  tree[box + "/memory.events"] = "oom 3\noom_kill 2\n";
  tree["/sys/fs/cgroup/kubepods/memory.events"] = "oom_kill 40\n";
  CHECK(limits_in(tree).memory_used == 3'000'000'000);
  CHECK(limits_in(tree).oom_kills == 2);
}

TEST_CASE("version 1: quota, set of processors and memory, in a container that does not see its own path") {
  auto tree = docker();
  CHECK(limits_in(tree).cpus == 2.5);
  CHECK(limits_in(tree).cpuset == 7);
  CHECK(limits_in(tree).usable_cpus(64) == 3);
  CHECK(limits_in(tree).memory == int64_t{1} << 30);
  CHECK(limits_in(tree).memory_used == 500'000'000);
  tree["/sys/fs/cgroup/cpu,cpuacct/docker/12ab/cpu.cfs_quota_us"] = "120000\n";  // on the host, the path of the group exists
  tree["/sys/fs/cgroup/cpu,cpuacct/docker/12ab/cpu.cfs_period_us"] = "100000\n";
  CHECK(limits_in(tree).cpus == 1.2);
  CHECK(limits_in(tree).usable_cpus(64) == 2);
}

TEST_CASE("version 1 without limits, and a controller under its own name alone") {
  Tree tree = docker();
  tree["/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"] = "-1\n";
  tree["/sys/fs/cgroup/cpuset/cpuset.effective_cpus"] = "\n";
  tree["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n";
  CHECK_FALSE(limits_in(tree).cpus.has_value());
  CHECK_FALSE(limits_in(tree).cpuset.has_value());
  CHECK_FALSE(limits_in(tree).memory.has_value());
  CHECK(limits_in(tree).usable_cpus(5) == 5);
  tree["/sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "400000\n";
  tree["/sys/fs/cgroup/cpu/cpu.cfs_period_us"] = "100000\n";
  CHECK(limits_in(tree).cpus == 4);
  CHECK(limits_in(tree).cpu_file == "/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
}

TEST_CASE("a set of processors limits as a quota does, the smaller of the two") {
  auto tree = pod();
  tree["/sys/fs/cgroup/kubepods/pod1/box/cpuset.cpus.effective"] = "4-5\n";
  tree["/sys/fs/cgroup/kubepods/cpuset.cpus.effective"] = "0-63\n";
  CHECK(limits_in(tree).cpuset == 2);
  CHECK(limits_in(tree).usable_cpus(64) == 2);
  tree["/sys/fs/cgroup/kubepods/pod1/cpu.max"] = "100000 100000\n";
  CHECK(limits_in(tree).usable_cpus(64) == 1);
}

TEST_CASE("no control groups, and files that hold something else, are no limit") {
  CHECK(limits_in({}).usable_cpus(8) == 8);
  CHECK(limits_in({}).usable_cpus(0) == 1);
  const std::string group = "/sys/fs/cgroup";
  for (const char* text : {"", "\n", "max", "0 100000", "-5 100000", "100000", "100000 0", "a b", "99999999999999999999 1"}) {
    CAPTURE(text);
    CHECK_FALSE(limits_in({{"/proc/self/cgroup", "0::/\n"}, {group + "/cpu.max", text}}).cpus.has_value());
  }
  for (const char* text : {"", "a", "3-1", "-4", "1,,2", "0-99999999"}) {
    CAPTURE(text);
    CHECK_FALSE(limits_in({{"/proc/self/cgroup", "0::/\n"}, {group + "/cpuset.cpus.effective", text}}).cpuset.has_value());
  }
  for (const char* own : {"", "0", "0:", "::", "0::", "0::relative", "garbage\n\n4:cpu"}) {
    CAPTURE(own);
    CHECK(limits_in({{"/proc/self/cgroup", own}, {group + "/relative/cpu.max", "1 1"}}).usable_cpus(8) == 8);
  }
  CHECK(limits_in({{"/proc/self/cgroup", "0::/../../other\n"}, {group + "/cpu.max", "200000 100000"}}).cpus == 2);
}

TEST_CASE("the control groups of this machine") {
  const auto limits = cgroup_limits();
  CHECK(limits.usable_cpus(1) == 1);
  CHECK(limits.usable_cpus(1 << 20) >= 1);
  CHECK(limits.cpus.has_value() == !limits.cpu_file.empty());
  CHECK(limits.memory.has_value() == !limits.memory_file.empty());
}

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

TEST_CASE("the command of this process: its program first, then its words") {
  const auto command = command_line();
  CHECK(has(command.substr(0, command.find(' ')), "test_core"));
}
