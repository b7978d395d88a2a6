/// The checks of a machine. Each looks at one area, reads nothing but what it is given, and never throws for what it finds: a file that is
/// missing or makes no sense is a finding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/finding.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train {

/// What only the running process knows.
struct ProcessFacts {
  std::string machine;         ///< as uname tells it: "x86_64", "aarch64"
  std::string npu_train;       ///< version
  std::string torch_headers;   ///< version that this program was compiled with: "2.13.0"
  std::string torch_library;   ///< version that the loaded library says; "" when it does not
  std::string torch_folder;    ///< where libtorch_cpu.so lies; "" when unknown (linked statically)
  bool cxx11_abi = true;       ///< _GLIBCXX_USE_CXX11_ABI
  std::string compiler;        ///< "GCC 12.2.0"
  std::string libc;            ///< "glibc 2.36"
  std::string cpu_capability;  ///< vector instructions that libtorch chose: "DEFAULT", "AVX2", "AVX512", "SVE256"
  int threads = 1;             ///< of libtorch's operators
  int cuda_runtime = 0;        ///< that libtorch was built with, as CUDA counts: 12080 is 12.8; 0: built without CUDA
  int cuda_devices = 0;        ///< that libtorch sees
  bool tf32_matmul = false;    ///< fp32 products on a GPU may use TF32
  bool tf32_conv = false;
  int64_t pid = 0;
};

/// Of this process.
ProcessFacts this_process();

/// Model and vector instructions, cores against the quota of the control group, threads, NUMA, low precision. x86 and aarch64.
std::vector<Finding> check_cpu(const HostView& host, const ProcessFacts& process);

/// Memory and swap against the control group's limit, /dev/shm, ulimits.
std::vector<Finding> check_memory(const HostView& host);

/// Room, file system and write speed of the folder that runs are to be written to. `write_bytes` are written, forced to disk and removed;
/// 0 measures nothing. A folder that is not there yet is not made: the nearest one above it is examined.
std::vector<Finding> check_disk(const HostView& host, const std::string& folder, uint64_t write_bytes = uint64_t{64} << 20);

/// Operating system, kernel, compiler, libtorch's version and ABI.
std::vector<Finding> check_system(const HostView& host, const ProcessFacts& process);

/// Driver, runtime, device nodes, GPUs with compute capability, bf16, TF32. One finding "not here" on a machine without a GPU.
std::vector<Finding> check_cuda(const HostView& host, const ProcessFacts& process);

/// Device nodes, permissions, driver, npu-smi, health, processes that hold a device, CANN, torch_npu with its libraries, library path,
/// overflow mode. One finding "not here" on a machine without a sign of an Ascend NPU.
std::vector<Finding> check_ascend(const HostView& host, const ProcessFacts& process);

/// The environment variables that devices, libtorch and communication heed: values that are not allowed, that contradict each other, or
/// that are for debugging. (environment_lint.hpp has them one by one.)
std::vector<Finding> check_environment(const HostView& host);

struct CheckOptions {
  std::string output = ".";  ///< folder of runs, for check_disk()
  uint64_t write_bytes = uint64_t{64} << 20;
};

/// All of the above.
DoctorReport check_machine(const HostView& host, const ProcessFacts& process, const CheckOptions& options = {});

}  // namespace npu_train
