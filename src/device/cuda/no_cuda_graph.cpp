// In the place of cuda_graph.cpp where libtorch has no CUDA.
#include "device/cuda/cuda_graph.hpp"

namespace npu_train::detail {

void add_cuda_graphs() {}

}  // namespace npu_train::detail
