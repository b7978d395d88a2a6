// The transports that carry tensors from the memory of one device to that of another: NCCL between CUDA devices, HCCL between Ascend NPUs.
// They are made from the store of c10d, as Gloo is.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace npu_train::detail {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

struct TransportPlace {
  c10::intrusive_ptr<c10d::Store> store{};
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{};
};

// What is missing, and what to do; "" if this process has the transport.
std::string why_no_nccl();
std::string why_no_hccl();
// Only where nothing is missing. They may wait for the other ranks.
BackendPtr make_nccl(const TransportPlace& place);
BackendPtr make_hccl(const TransportPlace& place);

}  // namespace npu_train::detail
