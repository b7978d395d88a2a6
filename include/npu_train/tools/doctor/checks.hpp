/// The checks of a machine. Each examines one area, reads only its arguments, and never throws because of a finding: a missing or invalid
/// file is a finding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu_train/tools/doctor/finding.hpp"
#include "npu_train/tools/doctor/host_view.hpp"

namespace npu_train {

/// Facts that only the running process knows.
struct ProcessFacts {
  std::string machine;         ///< as reported by uname: "x86_64", "aarch64"
  std::string npu_train;       ///< version
  std::string torch_headers;   ///< version that this program was compiled with: "2.13.0"
  std::string torch_library;   ///< version that the loaded library reports; "" if it does not
  std::string torch_folder;    ///< folder of libtorch_cpu.so; "" if unknown (linked statically)
  bool cxx11_abi = true;       ///< _GLIBCXX_USE_CXX11_ABI
  std::string compiler;        ///< "GCC 12.2.0"
  std::string libc;            ///< "glibc 2.36"
  std::string cpu_capability;  ///< vector instructions that libtorch chose: "DEFAULT", "AVX2", "AVX512", "SVE256"
  int threads = 1;             ///< of libtorch's operators
  int cuda_runtime = 0;        ///< with which libtorch was built, in CUDA's notation: 12080 is 12.8; 0: built without CUDA
  int cuda_devices = 0;        ///< that libtorch sees
  bool tf32_matmul = false;    ///< fp32 products on a GPU may use TF32
  bool tf32_conv = false;
  int64_t pid = 0;
};

/// The facts of this process.
ProcessFacts this_process();

/// Model and vector instructions, cores compared with the quota of the control group, threads, NUMA, low precision. x86 and aarch64.
std::vector<Finding> check_cpu(const HostView& host, const ProcessFacts& process);

/// Memory and swap compared with the control group's limit, /dev/shm, ulimits.
std::vector<Finding> check_memory(const HostView& host);

/// Free space, file system and write speed of the folder of the runs. `write_bytes` are written, synchronised to the disk and removed;
/// 0 measures nothing. A folder that does not exist is not created: its nearest existing parent is examined.
std::vector<Finding> check_disk(const HostView& host, const std::string& folder, uint64_t write_bytes = uint64_t{64} << 20);

/// Operating system, kernel, compiler, libtorch's version and ABI.
std::vector<Finding> check_system(const HostView& host, const ProcessFacts& process);

/// Driver, runtime, device nodes, GPUs with compute capability, bf16, TF32. One finding "not here" on a machine without a GPU.
std::vector<Finding> check_cuda(const HostView& host, const ProcessFacts& process);

/// Device nodes, permissions, driver, npu-smi, health, processes that hold a device, CANN, torch_npu with its libraries, library path,
/// overflow mode. One finding "not here" on a machine without a sign of an Ascend NPU.
std::vector<Finding> check_ascend(const HostView& host, const ProcessFacts& process);

/// The environment variables that devices, libtorch and communication read: values that are invalid, that contradict each other, or
/// that are for debugging. (See environment_lint.hpp.)
std::vector<Finding> check_environment(const HostView& host);

struct CheckOptions {
  std::string output = ".";  ///< folder of runs, for check_disk()
  uint64_t write_bytes = uint64_t{64} << 20;
};

/// All of the above.
DoctorReport check_machine(const HostView& host, const ProcessFacts& process, const CheckOptions& options = {});

}  // namespace npu_train
