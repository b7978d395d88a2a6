// Replaces cuda_graph.cpp if libtorch has no CUDA, or CUDA's headers are not found.
#include "device/cuda/cuda_graph.hpp"

namespace npu_train::detail {

std::unique_ptr<CapturedWork> make_cuda_graph() { return nullptr; }

}  // namespace npu_train::detail
