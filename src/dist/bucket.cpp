#include "dist/bucket.hpp"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

namespace npu_train::detail {

namespace {

// Of flat's size, in which its content can travel: flat itself if possible.
at::Tensor travelling(const at::Tensor& flat, Bucket::Travel travel) {
  const auto dtype = travel.bf16 && flat.scalar_type() == at::kFloat ? at::kBFloat16 : flat.scalar_type();
  const auto device = travel.between_devices ? flat.device() : c10::Device(c10::kCPU);
  if (flat.device() == device && dtype == flat.scalar_type()) return flat;
  return at::zeros(flat.sizes(), flat.options().device(device).dtype(dtype));
}

}  // namespace

Bucket::Bucket(FlatBucket layout, const ParameterSet& parameters, ProcessGroup& group, Travel travel)
    : layout_(std::move(layout)),
      parameters_(parameters),
      group_(group),
      delivered_(layout_.pieces.size()),
      flat_(at::zeros({layout_.numel}, layout_.options)),
      sent_(travelling(flat_, travel)) {
  begin_round();
}

void Bucket::begin_round() {
  delivered_.assign(delivered_.size(), false);
  missing_ = delivered_.size();
}

void Bucket::deliver(size_t piece) {
  auto& gradient = parameter(piece).mutable_grad();
  sum(piece).copy_(gradient);
  gradient.reset();
  delivered_[piece] = true;
  --missing_;
}

void Bucket::fill_missing() {
  for (size_t i = 0; i < delivered_.size(); ++i)
    if (!delivered_[i]) flat_.narrow(0, layout_.pieces[i].offset, layout_.pieces[i].numel).fill_(-0.0);
  missing_ = 0;
}

at::Tensor Bucket::sum(size_t piece) const { return FlatBucket::view(flat_, layout_.pieces[piece], parameter(piece)); }

at::Tensor Bucket::part(const at::Tensor& flat, int rank) const {
  const auto size = layout_.numel / group_.size();
  return flat.narrow(0, rank * size, size);
}

void Bucket::exchange(bool ordered) {
  // Once in parts and once as the sum of this rank's part, or as a ring does it: all but 1/N of the bucket, twice.
  times_ = {.bytes = 2 * (static_cast<int64_t>(sent_.nbytes()) - static_cast<int64_t>(sent_.nbytes()) / group_.size())};
  if (staged()) sent_.copy_(flat_);
  if (!ordered) {
    exchange_ = group_.all_reduce(sent_);
    return;
  }
  received_ = at::empty_like(sent_);
  exchange_ = group_.all_to_all(received_, sent_);
}

void Bucket::fold(bool ordered) {
  exchange_->wait();
  times_.exchange = std::exchange(exchange_, nullptr)->span();
  if (!ordered) return;
  for (int r = 0; r < group_.size(); ++r) {
    if (sum_.defined())
      sum_.add_(part(received_, r));
    else
      sum_ = part(received_, r).to(flat_.scalar_type());
  }
  received_.reset();
}

void Bucket::gather(bool ordered) {
  if (!ordered) return;
  sum_ = sum_.to(sent_.scalar_type());  // alive until it has been sent
  gather_ = group_.all_gather(sent_, sum_);
}

void Bucket::wait() {
  if (gather_) {
    gather_->wait();
    times_.gather = std::exchange(gather_, nullptr)->span();
  }
  sum_.reset();
  if (staged()) flat_.copy_(sent_);
}

}  // namespace npu_train::detail
