// at::cuda::CUDAGraph. CMake selects this file if libtorch has CUDA and CUDA's headers are found, otherwise no_cuda_graph.cpp.
#include "device/cuda/cuda_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>

namespace npu_train::detail {
namespace {

class CudaGraph final : public CapturedWork {
 public:
  void begin() override { graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal); }  // allows loader threads to continue their work
  void end() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<CapturedWork> make_cuda_graph() { return std::make_unique<CudaGraph>(); }

}  // namespace npu_train::detail
