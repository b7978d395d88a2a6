#include "dist/coded_sum.hpp"

#include <ATen/ops/empty.h>

#include <utility>

namespace npu_train::detail {

Message::Message(const at::Tensor& own, int ranks, bool between_devices)
    : device_(own.device()), in_(between_devices ? own.contiguous() : own.to(at::kCPU).contiguous()) {
  out_ = at::empty({ranks, own.size(1)}, in_.options());
}

Message Message::exchange(ProcessGroup& group, const at::Tensor& own, bool between_devices) {
  Message out(own, group.size(), between_devices);
  out.bytes_ = static_cast<int64_t>(own.nbytes()) / group.size() * (group.size() - 1);
  out.collective_ = group.all_to_all(out.out_.view({-1}), out.in_.view({-1}));
  return out;
}

Message Message::gather(ProcessGroup& group, const at::Tensor& own, bool between_devices) {
  Message out(own, group.size(), between_devices);
  out.bytes_ = static_cast<int64_t>(own.nbytes()) * (group.size() - 1);
  out.collective_ = group.all_gather(out.out_.view({-1}), out.in_.view({-1}));
  return out;
}

at::Tensor Message::wait() {
  collective_->wait();
  span_ = std::exchange(collective_, nullptr)->span();
  in_.reset();
  return std::exchange(out_, {}).to(device_);
}

at::Tensor CodedSum::send(const at::Tensor& values) {
  part_ = values.numel() / group_.size();
  const auto coded = code_.encode(values.view({group_.size(), part_}));
  exchange_ = std::make_unique<Message>(Message::exchange(group_, coded, between_devices_));
  times_ = {.bytes = exchange_->bytes()};
  return code_.decode(coded, part_).reshape({-1});
}

at::Tensor CodedSum::add() {
  const auto of_ranks = code_.decode(exchange_->wait(), part_);
  times_.exchange = std::exchange(exchange_, nullptr)->span();
  auto sum = of_ranks[0].clone();
  for (int r = 1; r < group_.size(); ++r) sum.add_(of_ranks[r]);
  return sum;
}

at::Tensor CodedSum::gather(const at::Tensor& part) {
  const auto coded = code_.encode(part.view({1, part_}));
  gather_ = std::make_unique<Message>(Message::gather(group_, coded, between_devices_));
  times_.bytes += gather_->bytes();
  return code_.decode(coded, part_).reshape({-1});
}

at::Tensor CodedSum::finish() {
  const auto all = code_.decode(gather_->wait(), part_);
  times_.gather = std::exchange(gather_, nullptr)->span();
  return all.reshape({-1});
}

}  // namespace npu_train::detail
