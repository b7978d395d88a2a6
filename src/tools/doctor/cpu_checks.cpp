#include <algorithm>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/report/report.hpp"
#include "tools/doctor/cpu_facts.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

using detail::CpuFacts;

constexpr const char* kCpu = "cpu";
constexpr const char* kCpuinfo = "/proc/cpuinfo";

std::string known_flags(const CpuFacts& cpu) {
  std::vector<std::string> out;
  for (const char* flag : {"avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16",
                           "amx_int8", "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2", "sme"})
    if (cpu.flags.contains(flag)) out.emplace_back(flag);
  return out.empty() ? "no vector instructions that libtorch uses" : join(out, " ");
}

bool is_x86(const ProcessFacts& process) { return process.machine == "x86_64" || process.machine == "amd64"; }

Finding model_finding(const CpuFacts& cpu, const ProcessFacts& process) {
  Finding f{kCpu, "model", Verdict::Ok, (cpu.model.empty() ? "unnamed processor" : cpu.model) + ", " + process.machine,
            "flags in " + std::string(kCpuinfo) + ": " + known_flags(cpu)};
  if (cpu.online == 0) {
    f = {kCpu,
         "model",
         Verdict::Warn,
         "the processor is unknown: " + std::string(kCpuinfo) + " contains none",
         "nothing readable",
         "mount /proc in this container or chroot"};
  } else if (is_x86(process) && !cpu.flags.contains("avx2")) {
    f.verdict = Verdict::Warn;
    f.finding += ", without AVX2: kernels run several times slower than on a processor with it";
    f.fix = "use a newer processor; a virtual machine must expose the host's flags (cpu mode host-passthrough)";
  }
  return f;
}

int rank_of_kernels(const std::string& name) { return name == "AVX512" ? 2 : name == "AVX2" ? 1 : 0; }

// Checks whether libtorch uses the available vector instructions.
Finding kernels_finding(const HostView& host, const CpuFacts& cpu, const ProcessFacts& process) {
  const auto& chosen = process.cpu_capability;
  std::string best;
  if (is_x86(process))
    best = cpu.flags.contains("avx512f") && cpu.flags.contains("avx512vl") && cpu.flags.contains("avx512bw") &&
                   cpu.flags.contains("avx512dq") && cpu.flags.contains("fma")
               ? "AVX512"
           : cpu.flags.contains("avx2") && cpu.flags.contains("fma") ? "AVX2"
                                                                     : "";
  const auto forced = host.variable("ATEN_CPU_CAPABILITY");
  Finding f{kCpu, "kernels", Verdict::Ok, "libtorch uses " + chosen + " kernels",
            "at::get_cpu_capability(); ATEN_CPU_CAPABILITY is " + (forced.empty() ? "not set" : "'" + forced + "'")};
  if (is_x86(process) && !cpu.flags.empty() && rank_of_kernels(chosen) > rank_of_kernels(best)) {
    f.verdict = Verdict::Fail;
    f.finding += ", which this processor does not have: the first operator ends the process (illegal instruction, SIGILL)";
    f.fix = forced.empty() ? "use a libtorch that is built for this processor" : "unset ATEN_CPU_CAPABILITY";
    return f;
  }
  if (best.empty() || chosen == best) return f;
  if (!forced.empty()) {
    f.verdict = Verdict::Warn;
    f.finding += " although this processor has " + best;
    f.fix = "unset ATEN_CPU_CAPABILITY";
  } else if (!chosen.starts_with("AVX")) {
    f.verdict = Verdict::Warn;
    f.finding += " although this processor has " + best;
    f.fix = "use a libtorch with vector kernels, as in the official packages";
  }
  return f;
}

Finding cores_finding(const CpuFacts& cpu) {
  const auto usable = cpu.usable();
  Finding f{kCpu, "cores", Verdict::Ok, std::to_string(usable) + (usable == 1 ? " processor" : " processors") + " for this process",
            std::to_string(cpu.online) + " in " + kCpuinfo};
  if (cpu.allowed) f.evidence += ", " + std::to_string(cpu.allowed->size()) + " allowed (/proc/self/status)";
  f.evidence += cpu.limits.cpus ? ", quota of the control group " + short_number(*cpu.limits.cpus) + " (" + cpu.limits.cpu_file + ")"
                                : ", no quota of a control group";
  if (cpu.limits.cpus && *cpu.limits.cpus < 1) {
    f.verdict = Verdict::Warn;
    f.finding = "the control group allows less than one processor (" + short_number(*cpu.limits.cpus) + ")";
    f.fix = "raise the limit of the container: docker run --cpus=4, or resources.limits.cpu of the pod";
  }
  return f;
}

// Returns the different OpenMP runtimes that this process has loaded, by file.
std::vector<std::string> openmp_runtimes(const HostView& host) {
  std::vector<std::string> out;
  for (const auto& line : detail::split(host.read("/proc/self/maps", size_t{4} << 20).value_or(""), '\n')) {
    const auto slash = line.find('/');
    if (slash == std::string::npos) continue;
    const auto path = line.substr(slash);
    const auto file = path.substr(path.rfind('/') + 1);
    if (!file.starts_with("libgomp") && !file.starts_with("libiomp5") && !file.starts_with("libomp.")) continue;
    if (std::find(out.begin(), out.end(), path) == out.end()) out.push_back(path);
  }
  return out;
}

Finding threads_finding(const HostView& host, const CpuFacts& cpu, const ProcessFacts& process) {
  const auto usable = cpu.usable();
  const auto set = host.variable("OMP_NUM_THREADS");
  Finding f{kCpu, "threads", Verdict::Ok,
            "operators use " + std::to_string(process.threads) + (process.threads == 1 ? " thread" : " threads") + " for " +
                std::to_string(usable) + (usable == 1 ? " processor" : " processors"),
            "at::get_num_threads(); OMP_NUM_THREADS is " + (set.empty() ? "not set" : "'" + set + "'")};
  const auto runtimes = openmp_runtimes(host);
  if (process.threads > usable) {
    f.verdict = Verdict::Warn;
    f.finding = "operators use " + std::to_string(process.threads) + " threads on " + std::to_string(usable) +
                (usable == 1 ? " processor" : " processors") + ": they wait for each other, and training is slower than with fewer";
    f.fix = "trainer.threads=" + std::to_string(usable) + ", or export OMP_NUM_THREADS=" + std::to_string(usable) +
            " (with several processes on this machine: processors / processes)";
  } else if (runtimes.size() > 1) {
    f.verdict = Verdict::Warn;
    f.finding += "; " + std::to_string(runtimes.size()) + " OpenMP runtimes are loaded, each with its own threads";
    f.evidence += "; " + join(runtimes);
    f.fix = "link only one of them; with LD_PRELOAD of libtorch's own runtime, the others are unused";
  }
  return f;
}

Finding numa_finding(const HostView& host, const CpuFacts& cpu) {
  if (cpu.nodes.size() <= 1)
    return {kCpu, "NUMA", Verdict::Ok, "one memory node: equal access to all memory",
            cpu.nodes.empty() ? "/sys/devices/system/node lists none" : "/sys/devices/system/node"};
  const auto allowed = [&](int id) {
    return !cpu.allowed || std::find(cpu.allowed->begin(), cpu.allowed->end(), id) != cpu.allowed->end();
  };
  const auto touched = std::count_if(cpu.nodes.begin(), cpu.nodes.end(),
                                     [&](const std::vector<int>& node) { return std::any_of(node.begin(), node.end(), allowed); });
  const auto memory = detail::value_of(host.read("/proc/self/status").value_or(""), "Mems_allowed_list", ':').value_or("unknown");
  Finding f{kCpu, "NUMA", Verdict::Ok,
            std::to_string(cpu.nodes.size()) + " memory nodes; this process may run on " + std::to_string(touched) + " of them",
            "/sys/devices/system/node; memory of nodes " + memory + " (/proc/self/status)"};
  if (touched > 1)
    f.finding +=
        ". A single run on the CPU should use all of them; several processes are faster if each has its own node "
        "(numactl --cpunodebind=N --membind=N)";
  return f;
}

Finding low_precision_finding(const CpuFacts& cpu) {
  const auto any = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return cpu.flags.contains(name); });
  };
  const bool bf16 = any({"avx512_bf16", "amx_bf16", "bf16"}), fp16 = any({"avx512_fp16", "amx_fp16", "asimdhp"});
  const std::string units = bf16 && fp16 ? "bf16 and fp16" : bf16 ? "bf16, but not fp16" : fp16 ? "fp16, but not bf16" : "";
  Finding f{kCpu, "low precision", Verdict::Ok, "the processor multiplies " + units,
            "flags avx512_bf16, amx_bf16, avx512_fp16, amx_fp16 (x86), bf16, asimdhp (ARM) in " + std::string(kCpuinfo)};
  if (fp16 && !any({"amx_fp16"}))
    f.finding += std::string("; fp16 is emulated nevertheless") +
                 (any({"avx512_fp16"}) ? ", since libtorch's kernels for it are slow without AMX-FP16" : "");
  if (units.empty())
    f.finding =
        "the processor multiplies neither bf16 nor fp16: on the CPU both are emulated, which shows their effect on a training "
        "but is not faster; 32-true is the fastest precision there";
  return f;
}

}  // namespace

std::vector<Finding> check_cpu(const HostView& host, const ProcessFacts& process) {
  const auto cpu = detail::cpu_facts(host);
  if (!process.torch_loaded) return {model_finding(cpu, process), cores_finding(cpu), numa_finding(host, cpu), low_precision_finding(cpu)};
  return {model_finding(cpu, process), kernels_finding(host, cpu, process), cores_finding(cpu), threads_finding(host, cpu, process),
          numa_finding(host, cpu),     low_precision_finding(cpu)};
}

}  // namespace npu_train
