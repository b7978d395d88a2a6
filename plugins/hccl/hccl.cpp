// A shared object that ranks on NPUs load: torch_npu's class that provides Huawei's HCCL collectives to c10d.
#include "npu_train_hccl.h"

#include "hccl/npu_stream.hpp"  // before all other headers of torch_npu

#include <torch_npu/csrc/distributed/ProcessGroupHCCL.hpp>

extern "C" __attribute__((visibility("default"))) c10d::Backend* npu_train_make_hccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                                                     int size, long timeout) {
  auto options = c10d_npu::ProcessGroupHCCL::Options::create();
  options->timeout = options->opTimeout = std::chrono::milliseconds(timeout);
  return c10::make_intrusive<c10d_npu::ProcessGroupHCCL>(store, rank, size, std::move(options)).release();
}
