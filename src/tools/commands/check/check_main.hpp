// npu_tool: becomes npu_tool_torch, which is in the same folder and links libtorch, or explains why that program does not start.
#pragma once

#include <string>

namespace npu_train::cli {

/// Runs the command line of npu_tool. doctor runs here as far as it needs no libtorch, and otherwise in a process of its own.
/// `torch_version`: the libtorch with which npu_tool_torch was compiled. Returns the exit status.
int check_main(int argc, char** argv, const std::string& torch_version);

}  // namespace npu_train::cli
