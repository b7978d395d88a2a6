// Features reported by the processor.
#pragma once

#include <string>

namespace npu_train::detail {

struct CpuFeatures {
  bool bf16 = false;  // AVX512_BF16, AMX-BF16, or Arm's BF16 extension
  // AMX-FP16. AVX512_FP16 and Arm's half-precision arithmetic do not suffice for a training: oneDNN has no weight gradient of convolutions
  // for them (src/cpu/cpu_convolution_list.cpp), and its reference code takes 86 times as long as fp32.
  bool fp16 = false;
};

// Parses the text of /proc/cpuinfo, for x86 ("flags") and aarch64 ("Features").
CpuFeatures parse_cpuinfo(const std::string& text);

// Returns the features of this machine; read once.
const CpuFeatures& cpu_features();

// Returns the content of the file; "" if it cannot be read.
std::string read_small_file(const std::string& path);

}  // namespace npu_train::detail
