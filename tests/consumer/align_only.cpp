// Uses only npu_train::align in a loop of its own: makes two dumps of a network, and finds the first layer in which they differ.
#include <torch/nn.h>

#include <cstdio>

#include <npu_train/core/error.hpp>
#include <npu_train/tools/align/compare.hpp>
#include <npu_train/tools/align/dumper.hpp>

int main() try {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
  for (const char* dir : {"net_a", "net_b"}) {
    npu_train::Dumper dumper({.dir = dir}, npu_train::dumped_model(*net));
    dumper.start();
    const auto loss = net->forward(torch::ones({3, 4})).square().mean();
    dumper.loss(loss);
    loss.backward();
    dumper.stop();
    dumper.step();
    net->zero_grad();
    const torch::NoGradGuard no_grad;
    net->parameters().back().add_(1);  // changes the last layer's bias before the second dump
  }
  const auto result = npu_train::compare_dumps("net_a", "net_b");
  std::printf("the first difference is in layer %s\n", result.first.layer.c_str());
  return !result.agrees && result.first.layer == "2" ? 0 : 1;
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
