// Trains the model that a configuration file describes: train_app CONFIG [key=value ...]
#include "npu_train/tools/commands/main.hpp"

int main(int argc, char** argv) { return npu_train::train_main(argc, argv); }
