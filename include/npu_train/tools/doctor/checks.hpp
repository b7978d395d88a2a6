/// Checks of a machine. Each examines one area, reads only its arguments, and never throws because of a finding: a missing or invalid file
/// is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/core/process.hpp"
#include "npu_train/tools/report/report.hpp"

namespace npu_train {

enum class Verdict {
  Ok,
  Warn,     ///< training works, but slower, less safely or differently than expected
  Fail,     ///< training fails, or computes wrong numbers
  NotHere,  ///< not applicable: this machine has no such part
};

/// Returns "OK", "WARN", "FAIL" or "-".
const char* verdict_name(Verdict verdict);

/// The result of one check.
struct Finding {
  std::string area;  ///< such as "cpu", "memory", "disk", "system", "cuda", "ascend", "hello"; findings of an area are adjacent
  std::string name;  ///< name of the check, unique in its area: "cores", "/dev/shm"
  Verdict verdict = Verdict::Ok;
  std::string finding;   ///< the fact, one sentence
  std::string evidence;  ///< the data that were read, and their source
  std::string fix{};     ///< the remedy; "" if none is needed
};

/// The findings of a machine in the order of the checks.
struct DoctorReport {
  std::vector<Finding> findings;

  /// Number of checks that are OK.
  size_t passed() const { return count(Verdict::Ok); }
  /// Number of checks that apply to this machine: all except NotHere.
  size_t total() const { return findings.size() - count(Verdict::NotHere); }
  size_t count(Verdict verdict) const;
  /// Returns Fail if a check fails, else Warn if one warns, else Ok.
  Verdict worst() const;

  void add(std::vector<Finding> more);

  /// Returns "31 of 34 checks passed, 2 warnings, 1 failed".
  std::string summary() const;
};

/// Reports areas, findings with evidence and fix, and the summary. JSON: {passed, total, warnings, failures, verdict, findings: [{area,
/// verdict, name, finding, evidence, fix}]}.
Report report_of(const DoctorReport& doctor);

// The source of facts about a machine: this machine, or a folder that simulates one.

/// Free space of a file system.
struct FileSystemSpace {
  uint64_t total = 0;
  uint64_t available = 0;   ///< bytes available to this user
  uint64_t free_files = 0;  ///< UINT64_MAX if the file system does not count them
};

/// A machine to examine. The checks use only this object (and ProcessFacts), so a test can simulate any machine. No function throws because
/// of the state of a machine, and every read is limited.
struct HostView {
  std::filesystem::path root = "/";                                   ///< prefix of all paths
  std::map<std::string, std::string> environment;                     ///< only variables that the doctor knows; others may contain secrets
  std::function<CommandResult(const std::vector<std::string>&)> run;  ///< like run_command()
  std::function<std::optional<FileSystemSpace>(const std::filesystem::path&)> space;  ///< free space at a path that includes `root`
  std::function<bool(const std::filesystem::path&)> may_use;  ///< whether a file can be opened for reading and writing

  /// Returns this machine, with HOME and the variables of this process that known_variables() (environment_lint.hpp) lists.
  static HostView live();

  /// Returns the path on this machine of `absolute`, a path of the examined machine.
  std::filesystem::path path(std::string_view absolute) const;
  /// Reads the beginning of a regular file (or one of /proc and /sys), at most `max_bytes`. nullopt if it is missing, unreadable, a folder,
  /// a pipe or a device.
  std::optional<std::string> read(std::string_view absolute, size_t max_bytes = size_t{1} << 20) const;
  bool exists(std::string_view absolute) const;
  bool is_folder(std::string_view absolute) const;
  /// Returns the names in a folder, sorted, at most 10,000; empty if it cannot be read.
  std::vector<std::string> list(std::string_view absolute) const;
  /// Resolves the links of `absolute` relative to `root`; returns `absolute` itself if it cannot be resolved.
  std::string resolved(std::string_view absolute) const;

  /// Returns the value of an environment variable; "" if it is not set.
  std::string variable(const std::string& name) const;
  bool has_variable(const std::string& name) const { return environment.contains(name); }
};

/// Facts that only the running process knows.
struct ProcessFacts {
  bool torch_loaded = true;    ///< false: libtorch is not loaded, so facts that it reports are not checked
  std::string machine;         ///< as reported by uname: "x86_64", "aarch64"
  std::string npu_train;       ///< version of npu_train
  std::string torch_headers;   ///< libtorch version that this program was compiled with: "2.13.0"
  std::string torch_library;   ///< version that the loaded libtorch reports; "" if it reports none
  std::string torch_folder;    ///< folder of libtorch_cpu.so; "" if unknown (linked statically)
  bool cxx11_abi = true;       ///< _GLIBCXX_USE_CXX11_ABI
  std::string compiler;        ///< "GCC 12.2.0"
  std::string libc;            ///< "glibc 2.36"
  std::string cpu_capability;  ///< vector instructions that libtorch chose: "DEFAULT", "AVX2", "AVX512", "SVE256"
  int threads = 1;             ///< threads of libtorch's operators
  int cuda_runtime = 0;        ///< CUDA version of libtorch in CUDA's notation: 12080 is 12.8; 0: built without CUDA
  int cuda_devices = 0;        ///< devices that libtorch sees
  bool tf32_matmul = false;    ///< fp32 products on a GPU may use TF32
  bool tf32_conv = false;
  int64_t pid = 0;
};

/// Returns the facts of a process without libtorch. (For a process with libtorch, see this_process() of probe/process_facts.hpp.)
/// `torch_headers`: the version with which the programs were compiled.
ProcessFacts process_without_libtorch(const std::string& torch_headers);

/// Checks model, vector instructions, cores and the quota of the control group, threads, NUMA and low precision, on x86 and aarch64.
std::vector<Finding> check_cpu(const HostView& host, const ProcessFacts& process);

/// Checks memory and swap, the limit of the control group, /dev/shm and ulimits.
std::vector<Finding> check_memory(const HostView& host);

/// Checks free space, file system and write speed of the folder of the runs. `write_bytes` are written, synchronised to the disk and
/// removed; 0: no measurement. A folder that does not exist is not created: its nearest existing parent is examined.
std::vector<Finding> check_disk(const HostView& host, const std::string& folder, uint64_t write_bytes = uint64_t{64} << 20);

/// Checks operating system, kernel, compiler, and libtorch's version and ABI.
std::vector<Finding> check_system(const HostView& host, const ProcessFacts& process);

/// Checks driver, runtime, device nodes, and the compute capability, bf16 and TF32 of the GPUs. Returns one finding "not here" on a machine
/// without a GPU.
std::vector<Finding> check_cuda(const HostView& host, const ProcessFacts& process);

/// Checks device nodes, permissions, driver, npu-smi, health, processes that use a device, CANN, torch_npu with its libraries, library path
/// and overflow mode. Returns one finding "not here" on a machine without a sign of an Ascend NPU.
std::vector<Finding> check_ascend(const HostView& host, const ProcessFacts& process);

/// Checks the environment variables that devices, libtorch and communication read: values that are invalid, contradict each other, or are
/// meant for debugging. (See environment_lint.hpp.)
std::vector<Finding> check_environment(const HostView& host);

struct CheckOptions {
  std::string output = ".";  ///< folder of runs, for check_disk()
  uint64_t write_bytes = uint64_t{64} << 20;
};

/// Runs all of the above checks.
DoctorReport check_machine(const HostView& host, const ProcessFacts& process, const CheckOptions& options = {});

}  // namespace npu_train
