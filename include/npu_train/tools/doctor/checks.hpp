/// Checks of a machine. Each examines one area, reads only its arguments, and never throws because of a finding: a missing or invalid file
/// is a finding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/finding.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train {

/// Facts that only the running process knows.
struct ProcessFacts {
  bool torch_loaded = true;    ///< false: libtorch is not loaded, so facts that it reports are not checked
  std::string machine;         ///< as reported by uname: "x86_64", "aarch64"
  std::string npu_train;       ///< version of npu_train
  std::string torch_headers;   ///< libtorch version that this program was compiled with: "2.13.0"
  std::string torch_library;   ///< version that the loaded libtorch reports; "" if it does not
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

/// Checks model, vector instructions, cores and the quota of the control group, threads, NUMA and low precision. x86 and aarch64.
std::vector<Finding> check_cpu(const HostView& host, const ProcessFacts& process);

/// Checks memory and swap, the limit of the control group, /dev/shm and ulimits.
std::vector<Finding> check_memory(const HostView& host);

/// Checks free space, file system and write speed of the folder of the runs. `write_bytes` are written, synchronised to the disk and
/// removed; 0: no measurement. A folder that does not exist is not created: its nearest existing parent is examined.
std::vector<Finding> check_disk(const HostView& host, const std::string& folder, uint64_t write_bytes = uint64_t{64} << 20);

/// Checks operating system, kernel, compiler, and libtorch's version and ABI.
std::vector<Finding> check_system(const HostView& host, const ProcessFacts& process);

/// Checks driver, runtime, device nodes, and GPUs with compute capability, bf16 and TF32. Returns one finding "not here" on a machine
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
