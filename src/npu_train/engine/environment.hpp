/// Facts about a process that may affect its results, if only in the last bits. If two runs disagree, compare these first.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace npu_train {

/// Returns the facts about this process, by name:
///
///   npu_train, libtorch, compiler, libc, machine      versions; libc, because exp and log differ between C libraries
///   openmp, mkl, mkldnn.version                       kernel libraries, with libtorch's names
///   cpu, cpu_capability, threads                      model of the CPU, and vector instructions that libtorch chose (AVX2, AVX512)
///   mkldnn, deterministic, flush_denormal             switches; flush_denormal of the calling thread
///   float32.*, cublas.*, cudnn.*                      TF32 and bf16 in fp32 products, precision of sums, benchmarked kernels
///   env.NAME                                          environment variables that kernels, devices and communication read
///
/// Only listed names are read from the environment (OMP_*, KMP_*, MKL_*, DNNL_*, ONEDNN_*, ATEN_CPU_CAPABILITY, CUDA_VISIBLE_DEVICES,
/// CUBLAS_WORKSPACE_CONFIG, NVIDIA_TF32_OVERRIDE, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE, ASCEND_*, INF_NAN_MODE_*, HCCL_*, NPU_*, PYTORCH_*),
/// because others may contain secrets. Listed names with TOKEN, SECRET, PASS, CREDENTIAL or KEY are also omitted.
std::map<std::string, std::string> environment();

/// Writes environment() as a JSON object of strings. Error(Checkpoint) if it cannot be written.
void write_environment(const std::filesystem::path& path);

/// Reads a file of write_environment(). Error(Data) if it is missing or is not an object of strings.
std::map<std::string, std::string> read_environment(const std::filesystem::path& path);

}  // namespace npu_train
