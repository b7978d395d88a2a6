#include "dist/duplex_gloo.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

using c10d::ProcessGroupGloo;

// The messages of an exchange: one part to each rank and one from each, this rank included.
class Messages final : public ProcessGroupGloo::AsyncWork {
 public:
  Messages(ProcessGroupGloo& group, std::shared_ptr<gloo::Context> context, c10d::OpType type, int tag, std::vector<at::Tensor> received,
           std::vector<at::Tensor> sent, std::chrono::milliseconds timeout)
      : AsyncWork(std::move(context), {received}, type, static_cast<uint64_t>(tag), timeout),
        group_(group),
        tag_(tag),
        received_(std::move(received)),
        sent_(std::move(sent)) {}

  // Called by the thread of the group.
  void run() override {
    const at::NoGradGuard no_grad;
    const int ranks = group_.getSize(), own = group_.getRank();
    std::vector<c10::intrusive_ptr<c10d::Work>> under_way;
    for (int i = 1; i < ranks; ++i) {
      const int from = (own + ranks - i) % ranks;
      std::vector<at::Tensor> part{received_[static_cast<size_t>(from)]};
      under_way.push_back(group_.recv(part, from, tag_));
    }
    for (int i = 1; i < ranks; ++i) {
      const int to = (own + i) % ranks;
      std::vector<at::Tensor> part{sent_[static_cast<size_t>(to)]};
      under_way.push_back(group_.send(part, to, tag_));
    }
    received_[static_cast<size_t>(own)].copy_(sent_[static_cast<size_t>(own)]);
    const auto end = std::chrono::steady_clock::now() + getTimeout();
    for (const auto& message : under_way) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      message->wait(std::max(left, std::chrono::milliseconds(1)));
    }
  }

  const std::vector<at::Tensor> getInputTensors() override { return sent_; }
  const std::vector<at::Tensor> getOutputTensors() override { return received_; }

 private:
  ProcessGroupGloo& group_;
  int tag_;
  std::vector<at::Tensor> received_, sent_;
};

std::vector<at::Tensor> parts_of(const at::Tensor& flat, int ranks) {
  check(flat.dim() == 1 && flat.size(0) % ranks == 0, ErrorKind::Usage, "process group", "a tensor of sizes ", flat.sizes(),
        " has no equal part for each of ", ranks, " ranks");
  std::vector<at::Tensor> out;
  const auto size = flat.size(0) / ranks;
  for (int r = 0; r < ranks; ++r) out.push_back(flat.narrow(0, r * size, size));
  return out;
}

}  // namespace

c10::intrusive_ptr<c10d::Work> DuplexGloo::start(c10d::OpType type, std::vector<at::Tensor> received, std::vector<at::Tensor> sent) {
  constexpr uint32_t kMostTag = 0x7fffffff;
  const auto tag = static_cast<int>(messages_++ & kMostTag);
  auto work = c10::make_intrusive<Messages>(*this, getContext(0), type, tag, std::move(received), std::move(sent), options_->timeout);
  enqueue(work);
  return work;
}

c10::intrusive_ptr<c10d::Work> DuplexGloo::exchange(const at::Tensor& out, const at::Tensor& in) {
  const at::NoGradGuard no_grad;
  return start(c10d::OpType::ALLTOALL_BASE, parts_of(out, getSize()), parts_of(in, getSize()));
}

c10::intrusive_ptr<c10d::Work> DuplexGloo::gather_all(const at::Tensor& out, const at::Tensor& in) {
  const at::NoGradGuard no_grad;
  return start(c10d::OpType::_ALLGATHER_BASE, parts_of(out, getSize()), std::vector<at::Tensor>(static_cast<size_t>(getSize()), in));
}

}  // namespace npu_train::detail
