#include "npu_train/core/command_line.hpp"

#include <fstream>

#include "npu_train/core/shell_word.hpp"

namespace npu_train {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string out;
  for (std::string argument; std::getline(file, argument, '\0');) out += (out.empty() ? "" : " ") + shell_word(argument);
  return out;
}

}  // namespace npu_train
