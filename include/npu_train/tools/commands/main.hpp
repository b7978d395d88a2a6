/// train_app and npu_tool as functions, for programs with parts of their own:
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

/// Adds to `parts` what the tools give a run: the section `dump`, the profiler of trainer.profiler, the watch for leaks, and the report
/// when memory runs out.
void add_tools(Parts& parts);

/// builtin_parts() with add_tools().
Parts tool_parts();

/// What `train_app` does with its command line, over `parts`. Returns the exit status. To be called once, from main(): it handles the
/// signals that end a program, and writes to stdout and stderr.
int train_main(int argc, char** argv, const Parts& parts = tool_parts());

/// What `npu_tool` does with its command line, over `parts`; likewise.
int tool_main(int argc, char** argv, const Parts& parts = tool_parts());

}  // namespace npu_train
