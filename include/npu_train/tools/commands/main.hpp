/// train_app and npu_tool as functions, for programs with their own parts:
///
///   #include <npu_train/tools/commands/main.hpp>
///
///   int main(int argc, char** argv) {
///     auto parts = npu_train::tool_parts();
///     parts.models.add<MyNetOptions>("my_net", "my own network", [](const MyNetOptions& o) { return make_my_net(o); });
///     return npu_train::tool_main(argc, argv, parts);  // or train_main
///   }
#pragma once

#include "npu_train/engine/parts.hpp"

namespace npu_train {

/// Adds the observers of the tools to `parts`: the section `dump`, the profiler of trainer.profiler, the leak watch, and the report
/// when memory runs out.
void add_tools(Parts& parts);

/// Returns builtin_parts() with add_tools().
Parts tool_parts();

/// Runs the command line of `train_app` with `parts`. Returns the exit status. Call it once, from main(): it handles the
/// signals that end a program, and writes to stdout and stderr.
int train_main(int argc, char** argv, const Parts& parts = tool_parts());

/// Runs the command line of `npu_tool` with `parts`, in the same way.
int tool_main(int argc, char** argv, const Parts& parts = tool_parts());

}  // namespace npu_train
