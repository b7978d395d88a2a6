// Replaces nccl.cpp in a build without NCCL.
#include "dist/device_transport.hpp"

namespace npu_train::detail {

std::string why_no_nccl() {
  return "this build has no NCCL; hint: build npu_train with a CUDA build of libtorch and with -DNPU_TRAIN_NCCL_INCLUDE=DIR, the folder of "
         "nccl.h (pip's package nvidia-nccl contains it)";
}

BackendPtr make_nccl(const TransportPlace& /*place*/) { return nullptr; }

}  // namespace npu_train::detail
