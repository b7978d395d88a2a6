// Process group of c10d for Gloo, with exchanges that use both directions of a connection at the same time.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <vector>

namespace npu_train::detail {

// Gloo's own collectives post their sends before their receives. The message that permits the other rank to send then waits behind this
// rank's data, unless the socket buffers hold the data, so a connection works in only one direction at a time. The collectives of this
// class post their receives first.
class DuplexGloo final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  // Sends part r of `in` to rank r; part r of `out` comes from rank r.
  c10::intrusive_ptr<c10d::Work> exchange(const at::Tensor& out, const at::Tensor& in);
  // Gathers `in` of all ranks in `out`.
  c10::intrusive_ptr<c10d::Work> gather_all(const at::Tensor& out, const at::Tensor& in);

 private:
  c10::intrusive_ptr<c10d::Work> start(c10d::OpType type, std::vector<at::Tensor> received, std::vector<at::Tensor> sent);

  uint32_t messages_ = 0;
};

}  // namespace npu_train::detail
