// Gloo's process group of c10d, whose exchanges use both directions of a connection at the same time.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <vector>

namespace npu_train::detail {

// A collective of Gloo posts what it sends before what it receives. The message that lets the other rank send then waits for its own
// data, as far as that exceeds the buffers of the socket, and the two directions take turns. These post what they receive first.
class DuplexGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  // `in` has a part for each rank, and `out` gets one of each.
  c10::intrusive_ptr<c10d::Work> exchange(const at::Tensor& out, const at::Tensor& in);
  // `out` gets `in` of each rank.
  c10::intrusive_ptr<c10d::Work> gather_all(const at::Tensor& out, const at::Tensor& in);

 private:
  c10::intrusive_ptr<c10d::Work> start(c10d::OpType type, std::vector<at::Tensor> received, std::vector<at::Tensor> sent);

  uint32_t messages_ = 0;
};

}  // namespace npu_train::detail
