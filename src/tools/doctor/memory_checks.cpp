#include <algorithm>

#include "npu_train/core/host.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr const char* kMemory = "memory";
constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

std::string bytes(int64_t n) { return human_bytes(static_cast<double>(n)); }

Finding memory_finding(const HostView& host) {
  const auto meminfo = host.read("/proc/meminfo").value_or("");
  const auto total = kib_value(meminfo, "MemTotal"), free = kib_value(meminfo, "MemAvailable");
  if (!total || !free)
    return {kMemory,
            "memory",
            Verdict::Warn,
            "the memory of this machine is unknown",
            "/proc/meminfo has no MemTotal and MemAvailable",
            "mount /proc in this container or chroot"};
  const auto group = cgroup_limits([&](const std::string& path) { return host.read(path); });
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
    f.finding += "; processes of this control group were killed for lack of memory " + std::to_string(group.oom_kills) + " times";
    f.fix = "raise the limit of the container, or use a smaller batch and fewer loader workers";
  }
  return f;
}

Finding swap_finding(const HostView& host) {
  const auto meminfo = host.read("/proc/meminfo").value_or("");
  const auto total = kib_value(meminfo, "SwapTotal").value_or(0), free = kib_value(meminfo, "SwapFree").value_or(0);
  const auto overcommit = detail::first_line(host.read("/proc/sys/vm/overcommit_memory").value_or(""));
  Finding f{kMemory, "swap and overcommit", Verdict::Ok,
            total == 0 ? "no swap" : bytes(total - free) + " of " + bytes(total) + " swap used",
            "/proc/meminfo, vm.overcommit_memory=" + (overcommit.empty() ? "unknown" : overcommit)};
  if (overcommit == "2") {
    f.verdict = Verdict::Warn;
    f.finding += "; memory must be backed when it is reserved, and device drivers reserve far more than they use";
    f.fix = "sysctl vm.overcommit_memory=0";
  } else if (total > 0 && total - free > kGiB && kib_value(meminfo, "MemAvailable").value_or(0) < 4 * kGiB) {
    f.verdict = Verdict::Warn;
    f.finding += " while little memory is available: this machine is swapping, and training is very slow";
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
            "there is no shared memory, through which processes on this machine exchange data",
            "/dev/shm is not a folder",
            "mount a tmpfs on /dev/shm; in a container: docker run --shm-size=8g or --ipc=host"};
  const auto total = static_cast<int64_t>(space->total), free = static_cast<int64_t>(space->available);
  Finding f{kMemory, "/dev/shm", Verdict::Ok, bytes(free) + " of shared memory free",
            "statvfs of /dev/shm: " + bytes(free) + " of " + bytes(total)};
  if (free < kGiB) {
    f.verdict = Verdict::Warn;
    f.finding += ": too little for processes that exchange data through it (NCCL, HCCL, Python data loaders)";
    f.fix = total <= 64 * kMiB
                ? "64 MiB is docker's default: docker run --shm-size=8g or --ipc=host; in a pod: an emptyDir with medium Memory"
            : total >= kGiB ? "remove the files of ended processes (ls -la /dev/shm)"
                            : "mount it larger: mount -o remount,size=8G /dev/shm; in a container: docker run --shm-size=8g or --ipc=host";
  }
  return f;
}

struct LimitRule {
  const char* line;  // name in /proc/self/limits
  const char* flag;  // flag of ulimit
  const char* what;
  int64_t warn, fail;  // smaller limits than these cause a warning or a failure
  const char* why;
  int64_t unit;        // unit of ulimit
  const char* docker;  // NAME in docker run --ulimit NAME=
};

constexpr LimitRule kLimits[] = {
    {"Max open files", "-n", "open files", 1024, 64, "data sets, loaders and connections need many", 1, "nofile"},
    {"Max processes", "-u", "processes", 512, 64, "every thread counts as one", 1, "nproc"},
    {"Max address space", "-v", "address space", INT64_MAX, 4 * kGiB, "device drivers and allocators reserve much more than they use", 1024,
     "as"},
    {"Max file size", "-f", "file size", 8 * kGiB, 64 * kMiB, "a larger checkpoint ends the process (SIGXFSZ)", 1024, "fsize"},
    {"Max cpu time", "-t", "processor time", INT64_MAX, 60, "the kernel ends the process when it is exceeded (SIGXCPU)", 1, "cpu"},
    {"Max stack size", "-s", "stack", kMiB, 64 * 1024, "deep recursion in libraries overflows it", 1024, "stack"},
};

struct Limit {
  int64_t soft, hard;  // INT64_MAX: unlimited
};

// Parses a line "Max open files            1024                 524288               files".
std::optional<Limit> limit_of(std::string_view limits, const char* name) {
  const auto number = [](const std::string& text) { return text == "unlimited" ? std::optional(INT64_MAX) : detail::whole_number(text); };
  for (const auto& line : detail::split(limits, '\n')) {
    if (!line.starts_with(name)) continue;
    const auto values = detail::words(line.substr(std::string_view(name).size()));
    const auto soft = values.empty() ? std::nullopt : number(values[0]);
    if (!soft) return std::nullopt;
    return Limit{*soft, values.size() > 1 ? number(values[1]).value_or(*soft) : *soft};
  }
  return std::nullopt;
}

std::string limit_text(int64_t value, const LimitRule& rule) {
  return value == INT64_MAX ? "unlimited" : rule.unit > 1 ? bytes(value) : std::to_string(value);
}

// Returns how to raise a limit. A user can raise it up to the hard limit, which only root can raise.
std::string limit_fix(const Limit& limit, const LimitRule& rule) {
  if (limit.hard == INT64_MAX) return std::string("ulimit ") + rule.flag + " unlimited";
  if (limit.hard >= rule.warn) return std::string("ulimit ") + rule.flag + " " + std::to_string(limit.hard / rule.unit);
  return std::string("its hard limit is ") + limit_text(limit.hard, rule) + ", which only root can raise: " + rule.docker +
         " in /etc/security/limits.conf; in a container: docker run --ulimit " + rule.docker + "=" +
         (rule.warn == INT64_MAX ? "-1" : std::to_string(rule.warn));
}

Finding limits_finding(const HostView& host) {
  const auto text = host.read("/proc/self/limits");
  if (!text)
    return {kMemory,      "ulimits", Verdict::Warn, "the limits of this process are unknown", "/proc/self/limits is not readable",
            "mount /proc"};
  Finding f{kMemory, "ulimits", Verdict::Ok, "no limit of this process is too low", "/proc/self/limits: "};
  std::vector<std::string> seen, wrong, fixes;
  for (const auto& rule : kLimits) {
    const auto limit = limit_of(*text, rule.line);
    if (!limit) continue;
    const auto shown = limit_text(limit->soft, rule);
    seen.push_back(std::string(rule.flag) + " " + shown);
    if (limit->soft >= rule.warn) continue;
    f.verdict = limit->soft < rule.fail || f.verdict == Verdict::Fail ? Verdict::Fail : Verdict::Warn;
    wrong.push_back(std::string("ulimit ") + rule.flag + " (" + rule.what + ") is " + shown + ": " + rule.why);
    fixes.push_back(limit_fix(*limit, rule));
  }
  // Considers only RDMA, since pages that CUDA pins do not count as locked memory.
  const bool rdma = !host.list("/dev/infiniband").empty() || host.exists("/dev/davinci_manager");
  const auto locked = limit_of(*text, "Max locked memory");
  if (rdma && locked && locked->soft < kGiB) {
    if (f.verdict == Verdict::Ok) f.verdict = Verdict::Warn;
    wrong.push_back("ulimit -l (locked memory) is " + bytes(locked->soft) + ": RDMA connections cannot pin their buffers");
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
