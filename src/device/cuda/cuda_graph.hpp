#pragma once

namespace npu_train::detail {

// Makes CUDA graphs known to libtorch's table of graphs, where this build has CUDA's headers and libtorch does not do so itself.
void add_cuda_graphs();

}  // namespace npu_train::detail
