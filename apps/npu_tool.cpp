// Starts npu_tool without linking libtorch, so that it can explain a libtorch that is missing or broken.
#include "npu_train/core/process.hpp"
#include "tools/commands/check/check_main.hpp"

int main(int argc, char** argv) { npu_train::end_process(npu_train::cli::check_main(argc, argv, NPU_TRAIN_TORCH_VERSION)); }
