#include <torch/torch.h>
#include <torch/cuda.h>

#include <iostream>

#include "trainer.hpp"

namespace tc = torch::cuda;
using namespace torch::indexing;

int main(int argc, char** argv) {
  // Prefer cuda; torch::kCUDA is the type
  const std::string help = "--device cuda:0 | cpu, cuda is faster";
  torch::manual_seed(1);
  torch::Device device(torch::kCPU);
  if (torch::cuda::is_available()) {
    std::cout << "CUDA is available, " << tc::device_count() << " devices\n";
    device = torch::Device(torch::kCUDA, 0);
  }
  const std::string name = argc > 1 ? argv[1] : "cuda:0";
  device = torch::Device(name == "cuda" ? "cuda" : name);
  Trainer trainer(device);
  trainer.run();
  setenv("CUDA_LAUNCH_BLOCKING", "1", 0);
  const auto big = 1'000'000;
  return big == 0;
}
