// Trains the model that a configuration file describes: train_app CONFIG [key=value ...]
#include "npu_train/core/process.hpp"
#include "npu_train/tools/commands/main.hpp"

int main(int argc, char** argv) { npu_train::end_process(npu_train::train_main(argc, argv)); }
