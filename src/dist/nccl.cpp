// NCCL of c10d. Needs a libtorch with CUDA and the header of NCCL: CMake uses this file if both are found, else no_nccl.cpp.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "dist/device_transport.hpp"

namespace npu_train::detail {

std::string why_no_nccl() { return ""; }

BackendPtr make_nccl(const TransportPlace& place) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = place.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(place.store, place.rank, place.size, std::move(options));
}

}  // namespace npu_train::detail
