// Binding of the kernel; runs on cuda only.
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include "box_cuda.h"

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")

namespace {
const char* kHelp = R"(
  .cuda() the tensors first
)";
}

void forward(const at::Tensor& a, const at::Tensor& b, at::Tensor out) {
  CHECK_CUDA(a);
  TORCH_CHECK(b.device().type() == at::kCUDA, "b is on ", b.device());
  auto stream = at::cuda::getCurrentCUDAStream();
  box_iou_launch(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), a.size(0), b.size(0), stream);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, "box iou (cuda)");
}
