#include "npu_train/dist/offload.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include "npu_train/core/error.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/device/device.hpp"

namespace npu_train {
namespace {

// Returns host memory with the sizes and strides of a tensor, in `dtype`; page-locked if that makes copies from and to its device faster.
at::Tensor host_memory_like(const at::Tensor& tensor, at::ScalarType dtype) {
  const auto device = device_of(tensor.device());
  const bool pinned = !tensor.is_cpu() && backend_of(device).capabilities(device).pinned_memory;
  return at::empty_like(tensor.detach(), at::TensorOptions(at::kCPU).dtype(dtype).pinned_memory(pinned).requires_grad(false));
}

// Queues the copy if both have the same strides; otherwise the copy goes through pageable memory, and blocks.
void copy_between(const at::Tensor& from, const at::Tensor& to) { to.copy_(from, /*non_blocking=*/from.strides() == to.strides()); }

}  // namespace

OffloadedStrategy::OffloadedStrategy(std::shared_ptr<Strategy> computed) : inner_(std::move(computed)) {
  check(inner_ != nullptr, ErrorKind::Usage, "OffloadedStrategy", "is given no strategy; hint: SingleDeviceStrategy for one process");
}

ParameterSet OffloadedStrategy::setup(const ParameterSet& trained) {
  own_ = inner_->setup(trained);
  copies_ = {};
  gradients_.assign(own_.size(), {});
  for (const auto& p : own_) {
    auto copy = p;
    copy.value = host_memory_like(p.value, p.value.scalar_type()).set_requires_grad(p.value.requires_grad());
    copies_.add(std::move(copy));
  }
  copies_.add_aliases_of(own_);
  parameters_loaded();
  return copies_;
}

void OffloadedStrategy::parameters_loaded() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < own_.size(); ++i) copies_[i].value.copy_(own_[i].value);
}

// Drops gradients that an abandoned window left on the device.
void OffloadedStrategy::begin_window(int64_t micro_batches) {
  own_.zero_grad();
  inner_->begin_window(micro_batches);
}

WindowWeight OffloadedStrategy::finish_gradients(const WindowWeight& own) {
  const auto total = inner_->finish_gradients(own);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < own_.size(); ++i) {
    auto& on_host = copies_[i].value.mutable_grad();
    const auto gradient = std::exchange(own_[i].value.mutable_grad(), at::Tensor());
    if (!gradient.defined()) {
      on_host.reset();
    } else if (gradient.layout() != at::kStrided) {
      on_host = gradient.to(at::kCPU);
    } else {
      auto& memory = gradients_[i];
      if (!memory.defined() || memory.scalar_type() != gradient.scalar_type())
        memory = host_memory_like(own_[i].value, gradient.scalar_type());
      copy_between(gradient, memory);
      on_host = memory;
    }
  }
  synchronize();
  return total;
}

void OffloadedStrategy::finish_step() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < own_.size(); ++i) copy_between(copies_[i].value, own_[i].value);
  inner_->finish_step();
}

// Waits for queued copies to the host. When the next gradients have arrived, earlier copies to the device have ended, too.
void OffloadedStrategy::synchronize() const {
  if (own_.empty() || own_[0].value.is_cpu()) return;
  const auto device = device_of(own_[0].value.device());
  backend_of(device).synchronize(device);
}

const ParameterSet& on_device(const Strategy& strategy, const ParameterSet& updated) {
  const auto* offloaded = dynamic_cast<const OffloadedStrategy*>(&strategy);
  return offloaded != nullptr ? offloaded->on_device() : updated;
}

}  // namespace npu_train
