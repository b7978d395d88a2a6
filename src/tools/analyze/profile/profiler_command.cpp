#include "npu_train/core/host.hpp"
#include "npu_train/tools/analyze/profiler.hpp"

namespace npu_train {

std::string profiler_command(const Device& device, const std::string& program) {
  auto command = program.empty() ? command_line() : program;
  if (command.empty()) command = "PROGRAM";
  if (device.kind == "cuda") return "nsys profile --trace=cuda,nvtx --output=npu_train " + command;
  if (device.kind == "npu") return "msprof --msproftx=on --output=./msprof " + command;
  return "";
}

}  // namespace npu_train
