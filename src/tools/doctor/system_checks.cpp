#include <sys/utsname.h>
#include <unistd.h>

#include "npu_train/core/c_library.hpp"
#include "npu_train/core/version.hpp"
#include "npu_train/tools/doctor/checks.hpp"
#include "npu_train/tools/doctor/version_matrix.hpp"
#include "tools/doctor/parse.hpp"

namespace npu_train {
namespace {

constexpr const char* kSystem = "system";

Finding os_finding(const HostView& host) {
  const auto text = host.read("/etc/os-release").value_or(host.read("/usr/lib/os-release").value_or(""));
  const auto name = detail::value_of(text, "PRETTY_NAME", '=').value_or("");
  const auto kernel = detail::first_line(host.read("/proc/sys/kernel/osrelease").value_or(""));
  Finding f{kSystem, "operating system", Verdict::Ok,
            (name.empty() ? "an unnamed Linux" : name) + ", kernel " + (kernel.empty() ? "unknown" : kernel),
            "/etc/os-release, /proc/sys/kernel/osrelease"};
  const auto here = Version::parse(kernel);
  const auto rule = version_rule("kernel");
  if (const auto wanted = Version::parse(rule ? rule->recommended : ""); here && wanted && *here < *wanted) {
    f.verdict = Verdict::Warn;
    f.finding += ", older than " + rule->recommended + " (table of " + version_matrix_date() + ")";
    f.fix = "update the system: current drivers of accelerators require newer kernels";
  }
  if (kernel.find("icrosoft") != std::string::npos) f.finding += " (WSL of Windows: GPUs work with its driver, Ascend NPUs do not)";
  return f;
}

Finding compiler_finding(const ProcessFacts& process) {
  return {kSystem, "compiler", Verdict::Ok,
          "npu_train " + process.npu_train + " was compiled by " + process.compiler + ", runs on " + process.libc,
          "__VERSION__, gnu_get_libc_version()"};
}

Finding torch_finding(const ProcessFacts& process) {
  const auto& library = process.torch_library.empty() ? process.torch_headers : process.torch_library;
  Finding f{kSystem, "libtorch", Verdict::Ok,
            "libtorch " + library +
                (process.cuda_runtime > 0
                     ? " with CUDA " + std::to_string(process.cuda_runtime / 1000) + "." + std::to_string(process.cuda_runtime % 1000 / 10)
                     : " for the CPU (without CUDA)"),
            (process.torch_folder.empty() ? "" : process.torch_folder + ", ") + "compiled against " + process.torch_headers};
  const auto headers = Version::parse(process.torch_headers), loaded = Version::parse(library);
  if (headers && loaded && headers->minor() != loaded->minor()) {
    f.verdict = Verdict::Fail;
    f.finding += ", but npu_train was compiled against " + process.torch_headers + ": classes may have different layouts";
    f.fix = "rebuild npu_train with this libtorch (Torch_DIR), or restore the old one (LD_LIBRARY_PATH decides which is loaded)";
    return f;
  }
  const auto rule = version_rule("libtorch");
  const auto least = Version::parse(rule ? rule->minimum : ""), best = Version::parse(rule ? rule->recommended : "");
  if (!rule || !loaded || !least || !best) return f;
  f.evidence += "; table of " + version_matrix_date() + ": " + rule->minimum + " to " + rule->recommended;
  if (*loaded < *least) {
    f.verdict = Verdict::Fail;
    f.finding += ", older than npu_train supports";
  } else if (Version::parse(loaded->minor()) > Version::parse(best->minor())) {
    f.verdict = Verdict::Warn;
    f.finding += ", newer than the versions with which npu_train is tested";
  }
  if (f.verdict != Verdict::Ok) f.fix = "install libtorch " + rule->recommended + " and rebuild npu_train";
  return f;
}

Finding abi_finding(const ProcessFacts& process) {
  Finding f{kSystem, "ABI", Verdict::Ok, std::string("C++ strings in the ") + (process.cxx11_abi ? "C++11" : "old") + " ABI",
            std::string("_GLIBCXX_USE_CXX11_ABI=") + (process.cxx11_abi ? "1" : "0")};
  if (!process.cxx11_abi) {
    f.verdict = Verdict::Warn;
    f.finding += ": current libraries (torch 2.6 and newer, and their torch_npu) do not link with it";
    f.fix = "install a libtorch with the C++11 ABI and rebuild npu_train";
  }
  return f;
}

}  // namespace

ProcessFacts process_without_libtorch(const std::string& torch_headers) {
  ProcessFacts out;
  out.torch_loaded = false;
  ::utsname names{};
  out.machine = ::uname(&names) == 0 ? names.machine : "unknown";
  out.npu_train = NPU_TRAIN_VERSION;
  out.torch_headers = torch_headers;
  out.cxx11_abi = _GLIBCXX_USE_CXX11_ABI != 0;
#ifdef __clang__
  out.compiler = "Clang " __clang_version__;
#else
  out.compiler = "GCC " __VERSION__;
#endif
  out.libc = c_library();
  out.pid = ::getpid();
  return out;
}

std::vector<Finding> check_system(const HostView& host, const ProcessFacts& process) {
  std::vector<Finding> out{os_finding(host), compiler_finding(process)};
  if (process.torch_loaded) out.push_back(torch_finding(process));
  out.push_back(abi_finding(process));
  return out;
}

DoctorReport check_machine(const HostView& host, const ProcessFacts& process, const CheckOptions& options) {
  DoctorReport report;
  report.add(check_system(host, process));
  report.add(check_cpu(host, process));
  report.add(check_memory(host));
  report.add(check_disk(host, options.output, options.write_bytes));
  report.add(check_cuda(host, process));
  report.add(check_ascend(host, process));
  report.add(check_environment(host));
  return report;
}

}  // namespace npu_train
