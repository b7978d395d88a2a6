/// Optimizer on the host: `dist.offload: optimizer` (ZeRO-Offload: Ren et al. 2021, arXiv:2101.06840).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "npu_train/dist/strategy.hpp"

namespace npu_train {

/// Wraps another strategy so that the optimizer updates copies of this rank's parameters in host memory. Optimizer state and weight
/// averages are therefore in host memory too; the device keeps parameters and gradients. Each step copies the gradients to the host, where
/// they are unscaled, clipped and applied, and copies the new values to the device.
///
/// Forwards all other calls to the wrapped strategy. An optimizer and a WeightAverage get the parameters that setup() returns; if
/// parameters are sharded, a WeightAverage gets on_device() as its model. A program that changes model parameters itself calls
/// parameters_loaded() afterwards.
class OffloadedStrategy final : public Strategy {
 public:
  /// Error(Usage) without a strategy.
  explicit OffloadedStrategy(std::shared_ptr<Strategy> computed);

  Ranks& ranks() const override { return inner_->ranks(); }
  Sharding sharding() const override { return inner_->sharding(); }
  ErrorFeedback* error_feedback() override { return inner_->error_feedback(); }
  ShardedUnits* units() override { return inner_->units(); }
  bool adds_in_order() const override { return inner_->adds_in_order(); }
  bool capturable() const override { return inner_->capturable(); }

  /// Returns the host copies, pinned if the device has pinned memory, with the names, groups and slices of the originals.
  ParameterSet setup(const ParameterSet& trained) override;
  /// The parameters that setup() of the wrapped strategy returned, in the order of their host copies.
  const ParameterSet& on_device() const { return own_; }
  bool writes_slices() const override { return inner_->writes_slices(); }
  bool begin_forward(bool has_batch) override { return inner_->begin_forward(has_batch); }
  void gather_slices(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) override {
    inner_->gather_slices(slices, whole);
  }
  /// Copies the values from the device to the host copies.
  void parameters_loaded() override;

  void add_over_ranks(at::Tensor& own) override { inner_->add_over_ranks(own); }
  void broadcast(const std::vector<at::Tensor>& tensors) override { inner_->broadcast(tensors); }

  void begin_window(int64_t micro_batches) override;
  void backward(const at::Tensor& loss, bool last) override { inner_->backward(loss, last); }
  void end_micro_batch() override { inner_->end_micro_batch(); }
  /// Sets the gradients of the host copies to the sums over ranks, and drops the gradients on the device.
  WindowWeight finish_gradients(const WindowWeight& own) override;
  ReductionTimes reduction_times() const override { return inner_->reduction_times(); }
  void agree(StepAgreement& step) override { inner_->agree(step); }
  /// Copies the updated values from the host to the device, and then calls finish_step() of the wrapped strategy.
  void finish_step() override;

  unsigned decide(unsigned wanted) override { return inner_->decide(wanted); }

 private:
  void synchronize() const;

  std::shared_ptr<Strategy> inner_;
  ParameterSet own_;                   // on the device, updated by this rank
  ParameterSet copies_;                // on the host, in the same order
  std::vector<at::Tensor> gradients_;  // host memory for the gradients of the copies, reused in each step
};

/// Returns the device tensors that belong to `updated`, which setup() of `strategy` returned: for an OffloadedStrategy the originals of its
/// copies, otherwise `updated` itself. Valid until the next setup().
const ParameterSet& on_device(const Strategy& strategy, const ParameterSet& updated);

}  // namespace npu_train
