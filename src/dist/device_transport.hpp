// Transports between the memories of devices: NCCL for CUDA devices, HCCL for Ascend NPUs. They use the store of c10d, as Gloo does.
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

// Returns a text with the missing part and the remedy; "" if this process has the transport.
std::string why_no_nccl();
std::string why_no_hccl();
// Creates a transport, if nothing is missing. May wait for the other ranks.
BackendPtr make_nccl(const TransportPlace& place);
BackendPtr make_hccl(const TransportPlace& place);

}  // namespace npu_train::detail
