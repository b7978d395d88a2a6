#include "device/cpu/cpu_features.hpp"

#include <fstream>
#include <iterator>
#include <sstream>

namespace npu_train::detail {

std::string read_small_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

CpuFeatures parse_cpuinfo(const std::string& text) {
  CpuFeatures out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) {
      if (word == "avx512_bf16" || word == "amx_bf16" || word == "bf16") out.bf16 = true;
      if (word == "amx_fp16") out.fp16 = true;
    }
    break;  // assumes that all cores are equal
  }
  return out;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = parse_cpuinfo(read_small_file("/proc/cpuinfo"));
  return features;
}

}  // namespace npu_train::detail
