/// The command with which this process was started.
#pragma once

#include <string>

namespace npu_train {

/// Returns the command as typed in a shell, with quotes where needed; "" if the system does not report it.
std::string command_line();

}  // namespace npu_train
