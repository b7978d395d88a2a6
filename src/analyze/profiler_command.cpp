#include <fstream>

#include "npu_train/analyze/profiler.hpp"

namespace npu_train {
namespace {

/// A program's own arguments as one would type them.
std::string shell_word(const std::string& text) {
  if (!text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") == std::string::npos)
    return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string this_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string out;
  for (std::string argument; std::getline(file, argument, '\0');) out += (out.empty() ? "" : " ") + shell_word(argument);
  return out.empty() ? "PROGRAM" : out;
}

}  // namespace

std::string profiler_command(const Device& device) {
  if (device.kind == "cuda") return "nsys profile --trace=cuda,nvtx --output=npu_train " + this_command();
  if (device.kind == "npu") return "msprof --msproftx=on --output=./msprof " + this_command();
  return "";
}

}  // namespace npu_train
