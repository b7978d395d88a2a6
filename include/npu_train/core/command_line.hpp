/// The command that this process was started with.
#pragma once

#include <string>

namespace npu_train {

/// As one would type it, words quoted where a shell needs it; "" where the system does not tell.
std::string command_line();

}  // namespace npu_train
