#pragma once
#include <torch/torch.h>

struct Trainer {
  explicit Trainer(torch::Device device) : device(device) {}
  void run();
  bool is_cuda() const { return device.is_cuda(); }
  torch::Device device;
  int cuda_cores = 0;
};
