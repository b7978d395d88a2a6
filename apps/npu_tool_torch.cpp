// The commands of npu_tool, which executes this program: npu_tool SUBCOMMAND ...; each prints JSON with --json.
#include "npu_train/core/process.hpp"
#include "npu_train/tools/commands/main.hpp"

int main(int argc, char** argv) { npu_train::end_process(npu_train::tool_main(argc, argv)); }
