#include "dist/parameter_slices.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/flat_layout.hpp"
#include "dist/gradient_hook.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/dist/process_group.hpp"

namespace npu_train::detail {
namespace {

// All-gather of the slices of one bucket's parameters.
class GatheredBucket {
 public:
  // Sends this rank's `slices`, one for each parameter of the set and on any device, rounded to `dtype`. `between_devices`: sends them
  // between the devices of the parameters, without a copy in host memory.
  GatheredBucket(const FlatBucket& layout, const std::vector<at::Tensor>& slices, at::ScalarType dtype, ProcessGroup& group,
                 bool between_devices);

  // Blocks, and copies the result to each defined tensor of `whole` in this bucket. `parameters` have the complete sizes and strides.
  void finish(const ParameterSet& parameters, const std::vector<at::Tensor>& whole);

 private:
  const FlatBucket& layout_;
  at::Tensor own_, all_;
  std::unique_ptr<Collective> gather_;
};

GatheredBucket::GatheredBucket(const FlatBucket& layout, const std::vector<at::Tensor>& slices, at::ScalarType dtype, ProcessGroup& group,
                               bool between_devices)
    : layout_(layout) {
  const auto options = layout.options.dtype(dtype).device(between_devices ? layout.options.device() : c10::Device(c10::kCPU));
  own_ = at::zeros({layout.numel / group.size()}, options);
  all_ = at::empty({layout.numel}, options);
  for (const auto& piece : layout.pieces) {
    const auto& slice = slices[piece.parameter];
    if (slice.numel() > 0) own_.narrow(0, layout.offset_in_part(piece, group.rank(), group.size()), slice.numel()).copy_(slice.detach());
  }
  gather_ = group.all_gather(all_, own_);
}

void GatheredBucket::finish(const ParameterSet& parameters, const std::vector<at::Tensor>& whole) {
  gather_->wait();
  for (const auto& piece : layout_.pieces)
    if (const auto& to = whole[piece.parameter]; to.defined())
      to.detach().copy_(FlatBucket::view(all_, piece, parameters[piece.parameter].value));
}

}  // namespace

ParameterSlices::ParameterSlices(const ParameterSet& parameters, const std::vector<Bucket>& buckets, ParameterUnits* units,
                                 const ShardGroups& groups, Sharding sharding, bool between_devices)
    : parameters_(parameters),
      buckets_(buckets),
      units_(units),
      groups_(groups),
      sharding_(sharding),
      between_devices_(between_devices),
      own_(sharding == Sharding::None ? parameters : divided()) {
  if (sharding_ != Sharding::None && units_ == nullptr) divide_masters(parameters_, own_);
}

ParameterSet ParameterSlices::divided() const {
  std::vector<Parameter> slices(parameters_.size());
  for (size_t b = 0; b < buckets_.size(); ++b)
    for (size_t i = 0; i < buckets_[b].layout().pieces.size(); ++i)
      slices[buckets_[b].layout().pieces[i].parameter] = units_ != nullptr ? units_->own(b, i) : buckets_[b].own(i);
  ParameterSet out(std::move(slices));
  out.add_aliases_of(parameters_);
  return out;
}

void ParameterSlices::unshard_parameters() const {
  if (sharding_ == Sharding::None) return;
  if (units_ != nullptr) units_->unshard_all();
  const at::NoGradGuard no_grad;
  const auto masters = masters_with_memory(parameters_);
  if (std::any_of(masters.begin(), masters.end(), [](const at::Tensor& t) { return t.defined(); })) gather(own_.values(), masters);
}

int64_t ParameterSlices::gather_parameters() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> whole;
  for (const auto& p : parameters_) whole.push_back(in_model(p));
  const auto travels_in = [&](const FlatBucket& b) { return whole[b.pieces.front().parameter].scalar_type(); };
  gather_buckets(own_.values(), whole, travels_in);  // masters are rounded before they are sent
  int64_t bytes = 0;
  for (const auto& b : buckets_) bytes += b.layout().bytes_to_others(groups_.shards->size(), c10::elementSize(travels_in(b.layout())));
  return bytes;
}

void ParameterSlices::gather(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) const {
  check(slices.size() == own_.size() && whole.size() == own_.size(), ErrorKind::Usage, "GradientReducer", slices.size(), " slices and ",
        whole.size(), " tensors; there are ", own_.size(), " parameters");
  for (size_t i = 0; i < own_.size(); ++i)
    check(slices[i].defined() && slices[i].numel() == own_[i].value.numel(), ErrorKind::Usage, "GradientReducer", "a slice of ",
          own_[i].name, " has ", own_[i].value.numel(),
          " elements; given: ", slices[i].defined() ? std::to_string(slices[i].numel()) : "an undefined tensor");
  const at::NoGradGuard no_grad;
  if (sharding_ == Sharding::None) {
    for (size_t i = 0; i < whole.size(); ++i)
      if (whole[i].defined() && !whole[i].is_same(slices[i])) whole[i].detach().copy_(slices[i]);
    return;
  }
  gather_buckets(slices, whole, [&](const FlatBucket& b) { return slices[b.pieces.front().parameter].scalar_type(); });
}

void ParameterSlices::gather_buckets(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole,
                                     const std::function<at::ScalarType(const FlatBucket&)>& travels_in) const {
  constexpr size_t kUnderWay = 2;  // one bucket is sent while another is copied
  std::deque<GatheredBucket> under_way;
  for (const auto& b : buckets_) {
    under_way.emplace_back(b.layout(), slices, travels_in(b.layout()), *groups_.shards, between_devices_);
    if (under_way.size() < kUnderWay) continue;
    under_way.front().finish(parameters_, whole);
    under_way.pop_front();
  }
  for (auto& b : under_way) b.finish(parameters_, whole);
}

at::Tensor without_memory(const at::Tensor& like, const at::TensorOptions& options, const std::string& why_not) {
  auto out = at::empty({0}, options);
  out.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  out.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(why_not);
  return out;
}

at::Tensor divided_master(const Parameter& parameter, const at::TensorOptions& options) {
  return without_memory(parameter.value, options,
                        "the master of " + parameter.name + " is divided among the ranks; GradientReducer::gather() gives all of it");
}

void divide_masters(const ParameterSet& parameters, ParameterSet& slices) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& p = parameters[i];
    if (!p.computed.defined()) continue;
    slices[i].value.set_data(slices[i].value.detach().clone());
    p.value.set_data(divided_master(p, p.value.options()));
  }
}

std::vector<at::Tensor> masters_with_memory(const ParameterSet& parameters) {
  std::vector<at::Tensor> out;
  for (const auto& p : parameters) {
    if (p.computed.defined()) p.value.set_data(at::empty_strided(p.value.sizes(), p.value.strides(), p.value.options()));
    out.push_back(p.computed.defined() ? p.value : at::Tensor());
  }
  return out;
}

}  // namespace npu_train::detail
