#include <algorithm>
#include <cctype>

#include "npu_train/core/text.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/doctor/version_matrix.hpp"
#include "tools/doctor/parse.hpp"
#include "tools/doctor/pci.hpp"

namespace npu_train {
namespace {

constexpr const char* kCuda = "cuda";
constexpr const char* kNvidiaVersion = "/proc/driver/nvidia/version";

struct Gpu {
  std::string index, name, driver, total, used, capability;  // memory in MiB, capability as "8.0"; "" if nvidia-smi does not report it
};

struct CudaFacts {
  std::string driver;  // version of the kernel module; "" if not loaded
  std::string driver_source;
  std::vector<std::string> pci;
  std::vector<std::string> nodes;  // /dev/nvidia0, ...
  CommandResult smi;
  std::vector<Gpu> gpus;
  bool wsl = false;
};

// Parses lines such as "0, NVIDIA H200, 550.54.15, 143771, 512, 9.0", without units; "[N/A]" and similar texts count as unknown.
std::vector<Gpu> parse_gpus(const std::string& text) {
  std::vector<Gpu> out;
  for (const auto& line : detail::split(text, '\n')) {
    auto cells = detail::split(line, ',');
    if (cells.size() < 5 || !detail::whole_number(cells[0]) || out.size() >= 1024) continue;
    for (auto& cell : cells) {
      cell = detail::trimmed(cell);
      if (cell.starts_with("[") || cell == "N/A") cell.clear();
    }
    out.push_back({cells[0], cells[1], cells[2], cells[3], cells[4], cells.size() > 5 ? cells[5] : ""});
  }
  return out;
}

void ask_nvidia_smi(const HostView& host, CudaFacts& out) {
  const auto query = [&](const std::string& fields) {
    out.smi = host.run({"nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"});
    out.gpus = out.smi.ok() ? parse_gpus(out.smi.output) : std::vector<Gpu>();
  };
  const std::string fields = "index,name,driver_version,memory.total,memory.used";
  query(fields + ",compute_cap");
  // drivers before 510 do not support compute_cap
  if (out.smi.end == CommandResult::End::Exited && out.smi.output.find("compute_cap") != std::string::npos) query(fields);
}

// Returns the version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023`: the first word with
// two numbers.
std::string module_version(const std::string& text) {
  for (const auto& word : detail::words(detail::first_line(text)))
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0 && word.find('.') != std::string::npos && Version::parse(word)) return word;
  return "";
}

CudaFacts cuda_facts(const HostView& host) {
  CudaFacts out;
  out.wsl = host.exists("/dev/dxg") && host.exists("/usr/lib/wsl/lib/libcuda.so.1");
  out.pci = detail::pci_devices(host, "0x10de", {"0x0300", "0x0302"});
  for (const auto& name : host.list("/dev"))
    if (name.starts_with("nvidia") && detail::whole_number(name.substr(6))) out.nodes.push_back("/dev/" + name);
  out.driver = module_version(host.read(kNvidiaVersion, 4096).value_or(""));
  out.driver_source = kNvidiaVersion;
  if (out.driver.empty() && out.nodes.empty() && out.pci.empty() && !out.wsl) return out;
  ask_nvidia_smi(host, out);
  if (out.driver.empty() && !out.gpus.empty()) {
    out.driver = out.gpus[0].driver;
    out.driver_source = "nvidia-smi";
  }
  return out;
}

std::string cuda_name(int runtime) { return std::to_string(runtime / 1000) + "." + std::to_string(runtime % 1000 / 10); }

// Returns the rule for this CUDA or, if the table has none, for the newest CUDA of the same major version.
std::optional<VersionRule> rule_for_cuda(const char* what, int runtime) {
  if (auto exact = version_rule(what, cuda_name(runtime))) return exact;
  const auto major = std::to_string(runtime / 1000) + ".";
  std::optional<VersionRule> out;
  for (const auto& key : version_keys(what))
    if (key.starts_with(major)) out = version_rule(what, key);
  return out;
}

// The verdict for a version below a rule, and a remark if the rule is not verified.
Verdict below(const VersionRule& rule) { return rule.checked ? Verdict::Fail : Verdict::Warn; }
const char* doubt(const VersionRule& rule) { return rule.checked ? "" : " (this row of the table is not verified)"; }

// Returns the verdict for a problem that makes a GPU unusable: a failure only if libtorch could use a GPU.
Verdict as_bad_as(const ProcessFacts& process) { return process.cuda_runtime > 0 ? Verdict::Fail : Verdict::Warn; }

Finding driver_finding(const CudaFacts& cuda, const ProcessFacts& process) {
  if (cuda.driver.empty())
    return {kCuda,
            "driver",
            as_bad_as(process),
            "there is an NVIDIA GPU, but its driver is not loaded",
            kNvidiaVersion + std::string(" is missing; ") + join(cuda.pci),
            "install NVIDIA's driver (in a container: docker run --gpus all with the NVIDIA container toolkit) and check that nvidia-smi "
            "lists the GPU"};
  Finding f{kCuda, "driver", Verdict::Ok, "driver " + cuda.driver, cuda.driver_source};
  if (process.cuda_runtime == 0) return f;
  const auto rule = rule_for_cuda("driver_for_cuda", process.cuda_runtime);
  const auto here = Version::parse(cuda.driver), least = Version::parse(rule ? rule->minimum : "");
  if (!rule || !here || !least) {
    f.verdict = Verdict::Warn;
    f.finding += "; its compatibility with CUDA " + cuda_name(process.cuda_runtime) + " of libtorch is unknown";
    f.fix = "the table of " + version_matrix_date() + " contains CUDA " + join(version_keys("driver_for_cuda")) +
            "; look up the driver in the release notes of CUDA";
    return f;
  }
  f.evidence += "; CUDA " + cuda_name(process.cuda_runtime) + " requires at least " + rule->minimum +
                "; recommended: " + rule->recommended + " (table of " + version_matrix_date() + ")";
  if (*here < *least) {
    f.verdict = below(*rule);
    f.evidence += doubt(*rule);
    f.finding += " is too old for CUDA " + cuda_name(process.cuda_runtime) + " of libtorch";
    f.fix = "install driver " + rule->recommended + " or newer, or a libtorch for an older CUDA";
  } else if (*here < *Version::parse(rule->recommended)) {
    f.finding += ", older than CUDA " + cuda_name(process.cuda_runtime) + ", which supports it within the same major version";
  }
  return f;
}

Finding nodes_finding(const HostView& host, const CudaFacts& cuda, const ProcessFacts& process) {
  if (cuda.wsl) return {kCuda, "device nodes", Verdict::Ok, "GPUs of the Windows driver", "/dev/dxg"};
  std::vector<std::string> missing, closed;
  for (const char* node : {"/dev/nvidiactl", "/dev/nvidia-uvm"})
    if (!host.exists(node)) missing.emplace_back(node);
  if (cuda.nodes.empty()) missing.emplace_back("/dev/nvidia0");
  auto all = cuda.nodes;
  all.insert(all.end(), {"/dev/nvidiactl", "/dev/nvidia-uvm"});
  for (const auto& node : all)
    if (host.exists(node) && !host.may_use(host.path(node))) closed.push_back(node);
  Finding f{kCuda, "device nodes", Verdict::Ok,
            std::to_string(cuda.nodes.size()) + (cuda.nodes.size() == 1 ? " GPU" : " GPUs") + " in /dev",
            join(cuda.nodes.empty() ? missing : cuda.nodes)};
  if (!missing.empty()) {
    f.verdict = as_bad_as(process);
    f.finding = join(missing) + " missing";
    f.fix =
        "run nvidia-smi once as root (it creates the nodes; nvidia-modprobe -u -c=0 creates /dev/nvidia-uvm); in a container: docker run "
        "--gpus all";
  } else if (!closed.empty()) {
    f.verdict = as_bad_as(process);
    f.finding = "this user has no access to " + join(closed);
    f.fix = "add the user to the nodes' group (ls -l /dev/nvidia*; usually video): sudo usermod -aG video $USER, then log in again";
  }
  return f;
}

Finding smi_finding(const CudaFacts& cuda, const ProcessFacts& process) {
  const auto said = detail::shortened(detail::first_line(cuda.smi.output));
  Finding f{kCuda, "nvidia-smi", Verdict::Ok, "lists " + std::to_string(cuda.gpus.size()) + (cuda.gpus.size() == 1 ? " GPU" : " GPUs"),
            "nvidia-smi --query-gpu"};
  switch (cuda.smi.end) {
    case CommandResult::End::NotFound:
      return {kCuda,         "nvidia-smi",
              Verdict::Warn, "nvidia-smi is not installed, so the GPUs are unknown",
              "not in PATH", "install the driver's utilities; in a container: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility"};
    case CommandResult::End::TimedOut:
      return {kCuda,         "nvidia-smi",
              Verdict::Fail, "nvidia-smi does not respond: the driver hangs",
              said,          "check dmesg for Xid lines, end the processes on the GPU, reboot if the error remains"};
    default:
      break;
  }
  if (cuda.smi.ok() && !cuda.gpus.empty()) return f;
  f.verdict = as_bad_as(process);
  f.finding = "nvidia-smi lists no GPU";
  f.evidence = "exit code " + std::to_string(cuda.smi.status) + ": " + said;
  f.fix = said.find("ersion mismatch") != std::string::npos
              ? "the driver was updated while its old module is loaded: reboot, or unload nvidia_uvm, nvidia_drm, nvidia_modeset and nvidia"
              : "check dmesg for NVRM lines; reinstall the driver for this kernel, or reboot";
  return f;
}

Finding gpu_finding(const Gpu& gpu, const ProcessFacts& process) {
  Finding f{kCuda, "gpu " + gpu.index, Verdict::Ok, gpu.name + ", " + gpu.total + " MiB, " + gpu.used + " MiB used", "nvidia-smi"};
  const auto capability = Version::parse(gpu.capability);
  if (!capability) {
    f.finding += "; its compute capability is unknown (drivers before 510 do not report it)";
    return f;
  }
  const bool ampere = *capability >= *Version::parse("8.0"), volta = *capability >= *Version::parse("7.0");
  f.finding += "; compute capability " + gpu.capability + ": " +
               (ampere  ? "bf16, fp16 and TF32 on tensor cores"
                : volta ? "fp16 on tensor cores; no bf16, no TF32: precision 16-mixed"
                        : "no tensor cores: precision 32-true");
  const auto rule = process.cuda_runtime > 0 ? rule_for_cuda("compute_capability_for_cuda", process.cuda_runtime) : std::nullopt;
  if (const auto least = Version::parse(rule ? rule->minimum : ""); least && *capability < *least) {
    f.verdict = below(*rule);
    f.evidence += doubt(*rule);
    f.finding += "; CUDA " + cuda_name(process.cuda_runtime) + " of libtorch supports " + rule->minimum + " and newer";
    f.fix = "install a libtorch built with an older CUDA, or hide this GPU with CUDA_VISIBLE_DEVICES";
    return f;
  }
  const auto total = detail::whole_number(gpu.total), used = detail::whole_number(gpu.used);
  if (total && used && *total > 0 && *used > *total / 2) {
    f.verdict = Verdict::Warn;
    f.finding += "; other processes hold more than half of its memory";
    f.fix = "nvidia-smi lists them; end them, or select another GPU with CUDA_VISIBLE_DEVICES";
  }
  return f;
}

Finding libtorch_finding(const HostView& host, const CudaFacts& cuda, const ProcessFacts& process) {
  const auto visible = host.variable("CUDA_VISIBLE_DEVICES");
  Finding f{kCuda, "libtorch", Verdict::Ok,
            "libtorch with CUDA " + cuda_name(process.cuda_runtime) + " sees " + std::to_string(process.cuda_devices) +
                (process.cuda_devices == 1 ? " GPU" : " GPUs"),
            host.has_variable("CUDA_VISIBLE_DEVICES") ? "CUDA_VISIBLE_DEVICES is '" + visible + "'" : "CUDA_VISIBLE_DEVICES is not set"};
  if (process.cuda_runtime == 0) {
    f.verdict = Verdict::Warn;
    f.finding = "this libtorch is built for the CPU only: the GPU is not used";
    f.evidence = "libtorch " + process.torch_headers + " without CUDA";
    f.fix = "install a CUDA build of libtorch, set Torch_DIR to it and rebuild npu_train";
  } else if (process.cuda_devices == 0) {
    f.verdict = Verdict::Fail;
    f.fix = host.has_variable("CUDA_VISIBLE_DEVICES") ? "CUDA_VISIBLE_DEVICES hides them; unset it"
                                                      : "fix the failures above; then check that nvidia-smi lists the GPU";
  } else if (!host.has_variable("CUDA_VISIBLE_DEVICES") && static_cast<size_t>(process.cuda_devices) < cuda.gpus.size()) {
    f.verdict = Verdict::Warn;
    f.finding += ", nvidia-smi lists " + std::to_string(cuda.gpus.size());
    f.fix = "check dmesg for a GPU that failed";
  }
  return f;
}

Finding tf32_finding(const HostView& host, const ProcessFacts& process) {
  const auto forced = host.variable("NVIDIA_TF32_OVERRIDE");
  Finding f{kCuda, "TF32", Verdict::Ok,
            std::string("fp32 products ") + (process.tf32_matmul ? "use" : "do not use") + " TF32, fp32 convolutions " +
                (process.tf32_conv ? "do" : "do not"),
            "libtorch's settings; NVIDIA_TF32_OVERRIDE is " + (forced.empty() ? "not set" : "'" + forced + "'")};
  if (forced == "1" || process.tf32_matmul) {
    f.verdict = Verdict::Warn;
    f.finding += ": fp32 products have a mantissa of 10 bits, about three digits";
    f.fix = forced == "1" ? "unset NVIDIA_TF32_OVERRIDE" : "unset TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, or keep it if speed is more important";
  }
  return f;
}

}  // namespace

std::vector<Finding> check_cuda(const HostView& host, const ProcessFacts& process) {
  const auto cuda = cuda_facts(host);
  const bool any = !cuda.driver.empty() || !cuda.nodes.empty() || !cuda.pci.empty() || cuda.wsl || process.cuda_devices > 0;
  if (!any)
    return {{kCuda, "NVIDIA GPU", Verdict::NotHere, "this machine has no NVIDIA GPU", "no driver, no /dev/nvidia*, no such PCI device"}};
  std::vector<Finding> out = {driver_finding(cuda, process)};
  if (!cuda.driver.empty()) {
    out.push_back(nodes_finding(host, cuda, process));
    out.push_back(smi_finding(cuda, process));
    for (const auto& gpu : cuda.gpus) out.push_back(gpu_finding(gpu, process));
  }
  if (process.torch_loaded) out.push_back(libtorch_finding(host, cuda, process));
  if (process.cuda_runtime > 0) out.push_back(tf32_finding(host, process));
  return out;
}

}  // namespace npu_train
