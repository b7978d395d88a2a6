/// Optimizer on the host: `dist.offload: optimizer` (ZeRO-Offload: Ren et al. 2021, arXiv:2101.06840).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/dist/strategy.hpp"

namespace npu_train {

/// Wraps another strategy so that the optimizer updates copies of this rank's parameters in host memory. Optimizer state and weight
/// averages are therefore in host memory too; the device keeps parameters and gradients. Each step copies the gradients to the host, where
/// they are unscaled, clipped and applied, and copies the new values to the device.
///
/// Forwards all other calls to the wrapped strategy. An optimizer and an Ema get the parameters that setup() returns; if parameters are
/// sharded, an Ema gets on_device() as its model. A program that changes model parameters itself calls parameters_loaded() afterwards.
class OffloadedStrategy final : public Strategy {
 public:
  /// Error(Usage) without a strategy.
  explicit OffloadedStrategy(std::shared_ptr<Strategy> computed);

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  bool adds_in_order() const override { return inner_->adds_in_order(); }

  /// Returns the host copies, pinned if the device has pinned memory, with the names, groups and slices of the originals.
  ParameterSet setup(const ParameterSet& trained) override;
  /// The parameters that setup() of the wrapped strategy returned, in the order of their host copies.
  const ParameterSet& on_device() const { return own_; }
  bool shards() const override { return inner_->shards(); }
  bool shards_parameters() const override { return inner_->shards_parameters(); }
  bool writes_slices() const override { return inner_->writes_slices(); }
  void set_units(std::vector<ParameterUnit> units) override { inner_->set_units(std::move(units)); }
  at::Tensor run_unit(size_t unit, const UnitForward& forward, const at::Tensor& x) override { return inner_->run_unit(unit, forward, x); }
  bool begin_forward(bool has_batch) override { return inner_->begin_forward(has_batch); }
  void gather_slices(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) override {
    inner_->gather_slices(slices, whole);
  }
  /// Copies the values from the device to the host copies.
  void parameters_loaded() override;

  bool has_compression_state() const override { return inner_->has_compression_state(); }
  CompressionState compression_state() const override { return inner_->compression_state(); }
  void load_compression_state(const State& saved) override { inner_->load_compression_state(saved); }
  void set_gradient_scale(double scale) override { inner_->set_gradient_scale(scale); }

  std::vector<double> sums(std::vector<double> own) override { return inner_->sums(std::move(own)); }
  void add_over_ranks(at::Tensor& own) override { inner_->add_over_ranks(own); }
  std::string from_main(std::string own) override { return inner_->from_main(std::move(own)); }
  void main_first(const std::function<void()>& work) override { inner_->main_first(work); }
  void broadcast(const std::vector<at::Tensor>& tensors) override { inner_->broadcast(tensors); }
  std::vector<std::string> gather(const std::string& own) override { return inner_->gather(own); }
  at::Tensor gather(const at::Tensor& own) override { return inner_->gather(own); }

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
  void barrier() override { inner_->barrier(); }
  void abandon() noexcept override { inner_->abandon(); }
  bool capturable() const override { return inner_->capturable(); }

 private:
  void synchronize() const;

  std::shared_ptr<Strategy> inner_;
  ParameterSet own_;                   // on the device, updated by this rank
  ParameterSet copies_;                // on the host, in the same order
  std::vector<at::Tensor> gradients_;  // host memory for the gradients of the copies, reused in each step
};

/// Returns the device tensors for `updated`, the result of setup() of `strategy`: the originals of an OffloadedStrategy's copies, otherwise
/// `updated` itself. Valid until the next setup().
const ParameterSet& on_device(const Strategy& strategy, const ParameterSet& updated);

}  // namespace npu_train
