// The commands of npu_tool (npu_tool SUBCOMMAND ...), which executes this program. Each command prints JSON with --json.
#include "npu_train/core/process.hpp"
#include "npu_train/tools/commands/main.hpp"

int main(int argc, char** argv) { npu_train::end_process(npu_train::tool_main(argc, argv)); }
