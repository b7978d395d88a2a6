#include <fstream>

#include "npu_train/analyze/profiler.hpp"
#include "npu_train/core/shell_word.hpp"

namespace npu_train {
namespace {

std::string this_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string out;
  for (std::string argument; std::getline(file, argument, '\0');) out += (out.empty() ? "" : " ") + shell_word(argument);
  return out.empty() ? "PROGRAM" : out;
}

}  // namespace

std::string profiler_command(const Device& device, const std::string& program) {
  const auto command = program.empty() ? this_command() : program;
  if (device.kind == "cuda") return "nsys profile --trace=cuda,nvtx --output=npu_train " + command;
  if (device.kind == "npu") return "msprof --msproftx=on --output=./msprof " + command;
  return "";
}

}  // namespace npu_train
