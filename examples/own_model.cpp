// A network of your own, trained from a configuration file by its name and with its own keys:
//   own_model examples/own_model.yaml [key=value ...]
#include <torch/nn.h>

#include <cstdio>

#include <npu_train/trainer.hpp>

struct SmallNetOptions {
  int64_t width = 32;        // channels of the first layer
  int64_t num_classes = 10;  // taken from the data set when the file does not say
  static const npu_train::ConfigTable<SmallNetOptions>& config_table() {
    static const auto table = npu_train::ConfigTable<SmallNetOptions>("model small_net")
                                  .field("width", &SmallNetOptions::width, "channels of the first layer", npu_train::between(1, 1024))
                                  .field("num_classes", &SmallNetOptions::num_classes, "outputs", npu_train::at_least(1));
    return table;
  }
};

struct SmallNetImpl : torch::nn::Module {
  explicit SmallNetImpl(const SmallNetOptions& o) {
    using namespace torch::nn;
    layers = register_module("layers", Sequential());
    int64_t in = 3;
    for (const int64_t out : {o.width, 2 * o.width, 4 * o.width}) {
      layers->push_back(Conv2d(Conv2dOptions(in, out, 3).stride(2).padding(1)));
      layers->push_back(BatchNorm2d(out));
      layers->push_back(ReLU());
      in = out;
    }
    layers->extend(*Sequential(AdaptiveAvgPool2d(1), Flatten(), Linear(in, o.num_classes)));
  }
  torch::Tensor forward(torch::Tensor x) { return layers->forward(x); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(SmallNet);

int main(int argc, char** argv) try {
  npu_train::set_log_sink(npu_train::make_standard_sink());
  auto parts = npu_train::builtin_parts();
  parts.models.add<SmallNetOptions>("small_net", "three convolutions and a linear layer", [](const SmallNetOptions& options) {
    auto model = npu_train::as_model(SmallNet(options));
    model.num_classes = options.num_classes;
    model.inputs = {npu_train::image_input(/*channels=*/3, /*side=*/32)};  // for tools that make batches of their own
    return model;
  });
  const std::vector<std::string> overrides(argv + std::min(argc, 2), argv + argc);
  npu_train::Trainer trainer(npu_train::load_config(argc > 1 ? argv[1] : "examples/own_model.yaml", overrides, parts), parts);
  const auto result = trainer.fit();
  std::printf("validation accuracy %.1f %%, files in %s\n", npu_train::scalar_or(result.final_val, "acc1", 0), result.run_dir.c_str());
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
