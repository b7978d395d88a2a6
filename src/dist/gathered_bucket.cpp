#include "dist/gathered_bucket.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace npu_train::detail {

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

}  // namespace npu_train::detail
