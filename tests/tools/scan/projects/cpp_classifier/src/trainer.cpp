#include "trainer.hpp"

#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>

using torch::kCUDA;
using c10::DeviceType;

void Trainer::run() {
  auto net = torch::nn::Sequential(torch::nn::Linear(8, 8), torch::nn::MaxPool1d(2));
  net->to(device);
  auto x = torch::rand({4, 8}).cuda();
  auto y = torch::rand({4, 8}, torch::TensorOptions().device(kCUDA).dtype(torch::kFloat64));
  if (x.device().type() == DeviceType::CUDA && x.is_cuda()) {
    c10::cuda::CUDAGuard guard(device);
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    torch::cuda::synchronize();
  }
  auto s = torch::heaviside(x, y);
  const char* raw = R"(torch::kCUDA)";
  (void)raw;
}
