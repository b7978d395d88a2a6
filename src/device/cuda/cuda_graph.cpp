// at::cuda::CUDAGraph behind libtorch's interface of graphs. Needs CUDA's headers: CMake takes it where libtorch has CUDA, else
// no_cuda_graph.cpp.
#include "device/cuda/cuda_graph.hpp"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#include <ATen/cuda/CUDAGraph.h>

namespace npu_train::detail {
namespace {

cudaStreamCaptureMode cuda_mode(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::ThreadLocal:
      return cudaStreamCaptureModeThreadLocal;
    case at::GraphCaptureMode::Relaxed:
      return cudaStreamCaptureModeRelaxed;
    default:
      return cudaStreamCaptureModeGlobal;
  }
}

class CudaGraph final : public at::GraphImplInterface {
 public:
  explicit CudaGraph(const at::GraphImplArgs& args) : graph_(args.keep_graph) {}
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override { graph_.capture_begin(pool, cuda_mode(mode)); }
  void capture_end() override { graph_.capture_end(); }
  void instantiate() override { graph_.instantiate(); }
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  c10::MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override { graph_.enable_debug_mode(); }
  void debug_dump(const std::string& path) override { graph_.debug_dump(path); }

 private:
  mutable at::cuda::CUDAGraph graph_;  // pool() is not const there
};

}  // namespace

void add_cuda_graphs() {
  if (at::has_graph_impl(c10::DeviceType::CUDA)) return;
  at::GraphImplRegistry()->Register(
      "CUDA", [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> { return std::make_unique<CudaGraph>(args); });
}

}  // namespace npu_train::detail

#else  // libtorch before 2.13

void npu_train::detail::add_cuda_graphs() {}

#endif
