// What the processor says of itself.
#pragma once

#include <cstdint>
#include <string>

namespace npu_train::detail {

struct CpuFeatures {
  bool bf16 = false;  // AVX512_BF16, AMX-BF16, or Arm's BF16 extension
  bool fp16 = false;  // AVX512_FP16, AMX-FP16, or Arm's half-precision arithmetic
};

// From the text of /proc/cpuinfo, which has the same form on x86 ("flags") and aarch64 ("Features").
CpuFeatures parse_cpuinfo(const std::string& text);

// Of this machine; read once.
const CpuFeatures& cpu_features();

// A line "Key:   123 kB" of /proc/self/status or /proc/meminfo in bytes; -1 without one.
int64_t proc_kib(const std::string& text, const std::string& key);

// The content of the file; "" if it cannot be read.
std::string read_small_file(const std::string& path);

}  // namespace npu_train::detail
