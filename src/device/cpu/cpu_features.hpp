// Features reported by the processor.
#pragma once

#include <string>

namespace npu_train::detail {

struct CpuFeatures {
  bool bf16 = false;  // AVX512_BF16, AMX-BF16, or Arm's BF16 extension
  // AMX-FP16. With AVX512_FP16 alone, libtorch's fp16 kernels take 1.3 to 63 times as long as the emulation (docs/precision.md): oneDNN has
  // only reference code for weight gradients of convolutions (its src/cpu/cpu_convolution_list.cpp). Arm's half precision is not measured.
  bool fp16 = false;
};

// Parses the text of /proc/cpuinfo, for x86 ("flags") and aarch64 ("Features").
CpuFeatures parse_cpuinfo(const std::string& text);

// Returns the features of this machine; read once.
const CpuFeatures& cpu_features();

// Returns the content of the file; "" if it cannot be read.
std::string read_small_file(const std::string& path);

}  // namespace npu_train::detail
