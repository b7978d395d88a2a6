#include <algorithm>

#include "doctor/cgroup.hpp"
#include "doctor/parse.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/doctor/checks.hpp"

namespace npu_train {
namespace {

constexpr const char* kMemory = "memory";
constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

std::string bytes(int64_t n) { return human_bytes(static_cast<double>(n)); }

Finding memory_finding(const HostView& host) {
  const auto meminfo = host.read("/proc/meminfo").value_or("");
  const auto total = detail::kib_value(meminfo, "MemTotal"), free = detail::kib_value(meminfo, "MemAvailable");
  if (!total || !free)
    return {kMemory,
            "memory",
            Verdict::Warn,
            "the memory of this machine is not told",
            "/proc/meminfo without MemTotal and MemAvailable",
            "mount /proc in this container or chroot"};
  const auto group = detail::cgroup_limits(host);
  int64_t available = *free;
  Finding f{kMemory, "memory", Verdict::Ok, "", "/proc/meminfo: " + bytes(*free) + " of " + bytes(*total) + " available"};
  if (group.memory) {
    available = std::min(available, std::max<int64_t>(0, *group.memory - group.memory_used));
    f.evidence += "; control group: " + bytes(group.memory_used) + " of " + bytes(*group.memory) + " used (" + group.memory_file + ")";
  }
  f.finding = bytes(available) + " available of " + bytes(group.memory ? std::min(*group.memory, *total) : *total);
  if (available < 2 * kGiB) {
    f.verdict = available < kGiB / 2 ? Verdict::Fail : Verdict::Warn;
    f.finding += available < kGiB / 2 ? ": too little to start a training" : ": little for a training";
    f.fix = group.memory && *group.memory - group.memory_used < *free ? "raise the limit of the container (docker run --memory=16g, "
                                                                        "resources.limits.memory of the pod)"
                                                                      : "end other programs (ps aux --sort=-rss | head), or add memory";
  } else if (group.oom_kills > 0) {
    f.verdict = Verdict::Warn;
    f.finding += "; processes of this control group were killed for memory " + std::to_string(group.oom_kills) + " times";
    f.fix = "raise the limit of the container, or use a smaller batch and fewer loader workers";
  }
  return f;
}

Finding swap_finding(const HostView& host) {
  const auto meminfo = host.read("/proc/meminfo").value_or("");
  const auto total = detail::kib_value(meminfo, "SwapTotal").value_or(0), free = detail::kib_value(meminfo, "SwapFree").value_or(0);
  const auto overcommit = detail::first_line(host.read("/proc/sys/vm/overcommit_memory").value_or(""));
  Finding f{kMemory, "swap and overcommit", Verdict::Ok,
            total == 0 ? "no swap" : bytes(total - free) + " of " + bytes(total) + " swap used",
            "/proc/meminfo, vm.overcommit_memory=" + (overcommit.empty() ? "not told" : overcommit)};
  if (overcommit == "2") {
    f.verdict = Verdict::Warn;
    f.finding += "; memory must be backed when it is reserved, and device drivers reserve far more than they use";
    f.fix = "sysctl vm.overcommit_memory=0";
  } else if (total > 0 && total - free > kGiB && detail::kib_value(meminfo, "MemAvailable").value_or(0) < 4 * kGiB) {
    f.verdict = Verdict::Warn;
    f.finding += " while little memory is left: this machine is swapping, and training crawls";
    f.fix = "end other programs, or use a smaller batch";
  }
  return f;
}

Finding shm_finding(const HostView& host) {
  const auto space = host.is_folder("/dev/shm") ? host.space(host.path("/dev/shm")) : std::nullopt;
  if (!space)
    return {kMemory,
            "/dev/shm",
            Verdict::Warn,
            "there is no shared memory: several processes on this machine cannot exchange data by it",
            "/dev/shm is no folder",
            "mount a tmpfs on /dev/shm; in a container: docker run --shm-size=8g or --ipc=host"};
  const auto total = static_cast<int64_t>(space->total), free = static_cast<int64_t>(space->available);
  Finding f{kMemory, "/dev/shm", Verdict::Ok, bytes(free) + " of shared memory free",
            "statvfs of /dev/shm: " + bytes(free) + " of " + bytes(total)};
  if (free < kGiB) {
    f.verdict = Verdict::Warn;
    f.finding += ": too little for several processes that exchange data by it (NCCL, HCCL, loaders of Python)";
    f.fix = total <= 64 * kMiB
                ? "64 MiB is docker's default: docker run --shm-size=8g or --ipc=host; in a pod: an emptyDir with medium Memory"
            : total >= kGiB ? "remove what dead processes left there (ls -la /dev/shm)"
                            : "mount it larger: mount -o remount,size=8G /dev/shm; in a container: docker run --shm-size=8g or --ipc=host";
  }
  return f;
}

struct LimitRule {
  const char* line;  // of /proc/self/limits
  const char* name;
  int64_t warn, fail;  // below these
  const char* why;
  const char* fix;
};

constexpr LimitRule kLimits[] = {
    {"Max open files", "ulimit -n (open files)", 1024, 64, "data sets, loaders and connections need many",
     "ulimit -n 65536, or docker run --ulimit nofile=65536"},
    {"Max processes", "ulimit -u (processes)", 512, 64, "every thread counts as one", "ulimit -u unlimited, or docker run --pids-limit=-1"},
    {"Max address space", "ulimit -v (address space)", INT64_MAX, 4 * kGiB, "device drivers and allocators reserve much more than they use",
     "ulimit -v unlimited"},
    {"Max file size", "ulimit -f (file size)", 8 * kGiB, 64 * kMiB, "a checkpoint that is larger ends the process (SIGXFSZ)",
     "ulimit -f unlimited"},
    {"Max cpu time", "ulimit -t (processor time)", INT64_MAX, 60, "the kernel ends the process when it is used up (SIGXCPU)",
     "ulimit -t unlimited"},
    {"Max stack size", "ulimit -s (stack)", kMiB, 64 * 1024, "deep recursion in libraries overflows it", "ulimit -s 8192"},
};

// The soft limit of a line "Max open files            1024                 524288               files"; INT64_MAX for unlimited.
std::optional<int64_t> soft_limit(std::string_view limits, const char* name) {
  for (const auto& line : detail::split(limits, '\n')) {
    if (!line.starts_with(name)) continue;
    const auto values = detail::words(line.substr(std::string_view(name).size()));
    if (values.empty()) return std::nullopt;
    return values[0] == "unlimited" ? std::optional(INT64_MAX) : detail::whole_number(values[0]);
  }
  return std::nullopt;
}

Finding limits_finding(const HostView& host) {
  const auto text = host.read("/proc/self/limits");
  if (!text)
    return {kMemory,      "ulimits", Verdict::Warn, "the limits of this process are not told", "/proc/self/limits is not readable",
            "mount /proc"};
  Finding f{kMemory, "ulimits", Verdict::Ok, "no limit of this process is in the way", "/proc/self/limits: "};
  std::vector<std::string> seen, wrong, fixes;
  for (const auto& rule : kLimits) {
    const auto limit = soft_limit(*text, rule.line);
    if (!limit) continue;
    const auto shown = *limit == INT64_MAX ? std::string("unlimited") : std::to_string(*limit);
    seen.push_back(detail::words(rule.name)[1] + " " + shown);
    if (*limit >= rule.warn) continue;
    f.verdict = *limit < rule.fail || f.verdict == Verdict::Fail ? Verdict::Fail : Verdict::Warn;
    wrong.push_back(std::string(rule.name) + " is " + shown + ": " + rule.why);
    fixes.emplace_back(rule.fix);
  }
  // RDMA pins memory, and only it counts here: pages that CUDA pins do not
  const bool rdma = !host.list("/dev/infiniband").empty() || host.exists("/dev/davinci_manager");
  const auto locked = soft_limit(*text, "Max locked memory");
  if (rdma && locked && *locked < kGiB) {
    if (f.verdict == Verdict::Ok) f.verdict = Verdict::Warn;
    wrong.push_back("ulimit -l (locked memory) is " + bytes(*locked) + ": connections by RDMA cannot pin their buffers");
    fixes.emplace_back("ulimit -l unlimited, or docker run --ulimit memlock=-1");
  }
  f.evidence += join(seen);
  if (!wrong.empty()) f.finding = join(wrong, "; ");
  f.fix = join(fixes, "; ");
  return f;
}

}  // namespace

std::vector<Finding> check_memory(const HostView& host) {
  return {memory_finding(host), swap_finding(host), shm_finding(host), limits_finding(host)};
}

}  // namespace npu_train
