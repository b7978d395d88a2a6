#include "dist/bucket.hpp"

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "dist/gradient_hook.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train::detail {

namespace {

// Returns a tensor of the size of `flat` that the transport can send: `flat` itself if possible.
at::Tensor travelling(const at::Tensor& flat, Bucket::Travel travel) {
  const auto dtype = flat.scalar_type() == at::kFloat ? travel.dtype : flat.scalar_type();
  const auto device = travel.between_devices ? flat.device() : c10::Device(c10::kCPU);
  if (flat.device() == device && dtype == flat.scalar_type()) return flat;
  return at::zeros(flat.sizes(), flat.options().device(device).dtype(dtype));
}

}  // namespace

Bucket::Bucket(FlatBucket layout, const ParameterSet& parameters, const ShardGroups& groups, const RankGroups& rank_groups, Travel travel,
               Sharding sharding)
    : layout_(std::move(layout)),
      parameters_(parameters),
      groups_(groups),
      rank_groups_(rank_groups),
      group_(*groups.all),
      travel_(travel),
      sharding_(sharding),
      delivered_(layout_.pieces.size()) {
  if (rank_groups_.members != nullptr)
    grouped_ = std::make_unique<GroupedSum>(rank_groups_, made_compressor());
  else
    compressor_ = made_compressor();
  const bool carries = travel_.compression.has_error_feedback() && layout_.options.dtype() == at::kFloat;
  if (rank_groups_.members != nullptr && rank_groups_.leaders == nullptr && carries) elsewhere_ = rank_groups_.count;
  if (sharding_ < Sharding::Gradients) make_buffers();
  begin_round();
}

std::unique_ptr<Compressor> Bucket::made_compressor() const {
  const auto made = [this](FlatBucket layout, ProcessGroup& group, Sharding sharding) {
    return make_compressor(travel_.compression, travel_.compresses,
                           {std::move(layout), parameters_, group, travel_.between_devices, sharding});
  };
  if (rank_groups_.members == nullptr) return made(layout_, group_, sharding_);
  if (rank_groups_.leaders == nullptr) return nullptr;
  // The first ranks of groups exchange their sums in the memory that the transport sends from.
  auto layout = layout_;
  if (!travel_.between_devices) layout.options = layout.options.device(c10::kCPU);
  return made(std::move(layout), *rank_groups_.leaders, Sharding::None);
}

void Bucket::compress(bool begins) {
  if (std::exchange(travel_.compresses, begins) == begins) return;
  if (grouped_ != nullptr)
    grouped_->set_compressor(made_compressor());
  else
    compressor_ = made_compressor();
}

void Bucket::make_buffers() {
  flat_ = at::zeros({layout_.numel}, layout_.options);
  sent_ = compressor_ != nullptr ? flat_ : travelling(flat_, travel_);
}

void Bucket::drop_buffers() {
  flat_.reset();
  sent_.reset();
}

void Bucket::begin_window() {
  sum_.reset();
  begin_round();
}

void Bucket::begin_round() {
  delivered_.assign(delivered_.size(), false);
  missing_ = delivered_.size();
}

void Bucket::deliver(size_t piece) {
  if (!flat_.defined()) make_buffers();
  const auto& of = parameters_[layout_.pieces[piece].parameter];
  if (of.value.grad().defined()) add_to_master(of);  // adds gradients of earlier micro-batches
  auto& gradient = of.value.grad().defined() ? of.value.mutable_grad() : of.computed.mutable_grad();
  check(gradient.layout() == at::kStrided, ErrorKind::Usage, "GradientReducer", "the gradient of ", of.name, " is ", gradient.layout(),
        "; allowed with several ranks: dense gradients; hint: torch::nn::EmbeddingOptions::sparse(false)");
  FlatBucket::view(flat_, layout_.pieces[piece], of.value).copy_(gradient);
  gradient.reset();
  delivered_[piece] = true;
  --missing_;
}

void Bucket::fill_missing() {
  if (!flat_.defined()) make_buffers();
  for (size_t i = 0; i < delivered_.size(); ++i)
    if (!delivered_[i]) flat_.narrow(0, layout_.pieces[i].offset, layout_.pieces[i].numel).fill_(-0.0);
  missing_ = 0;
}

at::Tensor Bucket::sum(size_t piece) const {
  const auto& of = layout_.pieces[piece];
  if (sharding_ == Sharding::None) return FlatBucket::view(flat_, of, parameter(piece));
  const int shard = groups_.shards->rank(), shards = groups_.shards->size();
  const auto range = layout_.range_of_rank(of, shard, shards);
  const at::AutoDispatchBelowADInplaceOrView no_view;
  return sum_.as_strided({range.numel}, {1}, layout_.offset_in_part(of, shard, shards));
}

Parameter Bucket::own(size_t piece) const {
  const auto range = layout_.range_of_rank(layout_.pieces[piece], groups_.shards->rank(), groups_.shards->size());
  return parameters_[layout_.pieces[piece].parameter].slice(range.begin, range.numel);
}

// Reorders the parts so that part r is the one that rank r adds. In `flat`, a shard consists of consecutive parts, one for each rank that
// has the shard.
at::Tensor Bucket::by_rank(const at::Tensor& flat) const {
  if (groups_.replicas == nullptr) return flat;
  return flat.view({groups_.shards->size(), groups_.replicas->size(), -1}).transpose(0, 1).reshape({-1});
}

void Bucket::exchange(bool ordered, double unit) {
  steps_ = 0;
  waited_ = false;
  if (compressor_ != nullptr) {
    compressor_->send(flat_, unit);
    if (sharding_ >= Sharding::Gradients) drop_buffers();
    return;
  }
  // This rank sends its gradients in parts, and then the sum of its own part. Each time it sends all but 1/N of the bucket, as much as in a
  // ring.
  const int64_t times = scatters(ordered) || (ordered && sharding_ != Sharding::None) ? 1 : 2;  // with shards, the sums are not sent
  const int divided_by = scatters(ordered) ? groups_.shards->size() : group_.size();
  times_ = {.bytes = times * (static_cast<int64_t>(sent_.nbytes()) - static_cast<int64_t>(sent_.nbytes()) / divided_by)};
  if (staged()) sent_.copy_(flat_);
  if (grouped_ != nullptr) return grouped_->begin(sent_, unit);
  if (scatters(ordered)) {
    received_ = at::empty({layout_.numel / groups_.shards->size()}, sent_.options());
    exchange_ = groups_.shards->reduce_scatter(received_, sent_);
    return;
  }
  if (!ordered) {
    exchange_ = group_.all_reduce(sent_);
    return;
  }
  received_ = at::empty_like(sent_);
  exchange_ = group_.all_to_all(received_, by_rank(sent_));
}

void Bucket::fold(bool ordered) {
  if (compressor_ != nullptr) return compressor_->pass_on();
  exchange_->wait();
  times_.exchange = std::exchange(exchange_, nullptr)->span();
  if (ordered) {
    for (int r = 0; r < group_.size(); ++r) {
      if (sum_.defined())
        sum_.add_(part(received_, r, group_.size()));
      else
        // A copy, so that received_ can be freed.
        sum_ = part(received_, r, group_.size()).to(flat_.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    }
    received_.reset();
  } else if (scatters(ordered)) {
    auto part = std::exchange(received_, at::Tensor());
    if (sum_.defined())
      sum_.add_(part);
    else
      sum_ = std::move(part);
  } else if (sharding_ != Sharding::None) {
    sum_ = part(sent_, groups_.shards->rank(), groups_.shards->size()).clone();
  }
  if (sharding_ >= Sharding::Gradients) drop_buffers();
}

// Converts a sum to the device and the dtype of the parameters.
at::Tensor Bucket::as_parameters(const at::Tensor& sum) const {
  return sum.to(layout_.options.device(), layout_.options.dtype().toScalarType());
}

void Bucket::gather(bool ordered) {
  if (compressor_ != nullptr) return;
  if (sharding_ != Sharding::None) {
    if (ordered && groups_.replicas != nullptr) {
      shard_ = at::empty({layout_.numel / groups_.shards->size()}, sum_.options());
      gather_ = groups_.replicas->all_gather(shard_, sum_);
    } else if (scatters(ordered) && groups_.replicas != nullptr) {
      gather_ = groups_.replicas->all_reduce(sum_);  // adds the sums of all shard groups
      times_.bytes += 2 * (static_cast<int64_t>(sum_.nbytes()) - static_cast<int64_t>(sum_.nbytes()) / groups_.replicas->size());
    } else {
      sum_ = as_parameters(sum_);
    }
    return;
  }
  if (!ordered) return;
  sum_ = sum_.to(sent_.scalar_type());  // kept alive until it has been sent
  gather_ = group_.all_gather(sent_, sum_);
}

void Bucket::step(bool ordered, bool last_round) {
  if (grouped_ != nullptr) return grouped_->step();
  fold(ordered);
  if (last_round) gather(ordered);
  steps_ = kSteps;
}

bool Bucket::ready() const {
  if (grouped_ != nullptr) return grouped_->ready();
  return compressor_ != nullptr ? compressor_->arrived() : exchange_ != nullptr && exchange_->done();
}

bool Bucket::idle() const {
  if (waited_) return true;
  if (grouped_ != nullptr) return grouped_->done();
  if (compressor_ != nullptr) return compressor_->done();
  return (exchange_ == nullptr || exchange_->done()) && (gather_ == nullptr || gather_->done());
}

void Bucket::turn() {
  if (grouped_ != nullptr) grouped_->turn();
  if (compressor_ != nullptr) compressor_->turn();
}

void Bucket::take_grouped() {
  grouped_->finish();
  times_ = grouped_->times();
  if (sharding_ == Sharding::None) {
    if (staged()) flat_.copy_(sent_);
    return;
  }
  sum_ = as_parameters(part(sent_, groups_.shards->rank(), groups_.shards->size()).clone());
  if (sharding_ >= Sharding::Gradients) drop_buffers();
}

void Bucket::wait() {
  if (std::exchange(waited_, true)) return;
  if (grouped_ != nullptr) return take_grouped();
  if (compressor_ != nullptr) {
    auto& sums = sharding_ == Sharding::None ? flat_ : sum_;
    sums = compressor_->finish();
    sent_ = flat_;
    times_ = compressor_->times();
    return;
  }
  if (gather_) {
    gather_->wait();
    times_.gather = std::exchange(gather_, nullptr)->span();
  }
  if (shard_.defined()) sum_ = as_parameters(std::exchange(shard_, at::Tensor()));
  if (sharding_ != Sharding::None) sum_ = as_parameters(sum_);
  if (sharding_ != Sharding::None) return;
  sum_.reset();
  if (staged()) flat_.copy_(sent_);
}

}  // namespace npu_train::detail
