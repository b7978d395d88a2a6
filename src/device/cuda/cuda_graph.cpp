// at::cuda::CUDAGraph. Needs CUDA's headers: CMake takes this file where libtorch has CUDA and they are found, else no_cuda_graph.cpp.
#include "device/cuda/cuda_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>

namespace npu_train::detail {
namespace {

class CudaGraph final : public CapturedWork {
 public:
  void begin() override { graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal); }  // loader threads may continue
  void end() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<CapturedWork> make_cuda_graph() { return std::make_unique<CudaGraph>(); }

}  // namespace npu_train::detail
