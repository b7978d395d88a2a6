// train_app and npu_tool in one program, in which every command knows your own network by its name.
//   own_tool train CONFIG.yaml [key=value ...]       (the options of train_app)
//   own_tool SUBCOMMAND ...                          (the subcommands of npu_tool)
#include <torch/nn.h>

#include <cstring>

#include <npu_train/tools/commands/main.hpp>
#include <npu_train/train/classifier.hpp>

int main(int argc, char** argv) {
  auto parts = npu_train::tool_parts();
  parts.models.add<npu_train::NoOptions>("linear_net", "one linear layer", [](const npu_train::NoOptions&) {
    auto model = npu_train::as_model(torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(3 * 32 * 32, 10)));
    model.num_classes = 10;
    return model;
  });
  if (argc > 1 && std::strcmp(argv[1], "train") == 0) return npu_train::train_main(argc - 1, argv + 1, parts);
  return npu_train::tool_main(argc, argv, parts);
}
