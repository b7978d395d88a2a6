/// An exponential moving average of the weights, which often validates better than the weights themselves (Polyak averaging).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/skippable_step.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/core/config_table.hpp"

namespace npu_train {

/// Section `ema`.
struct EmaOptions {
  bool enabled = false;
  double decay = 0.9999;  ///< weight of the previous average in each update
  bool warmup = true;     ///< decay of update n is min(decay, (1 + n) / (10 + n)), so that the first weights soon lose their influence
  static const ConfigTable<EmaOptions>& config_table();
};

/// Updates average = decay * average + (1 - decay) * parameter in fp32 (fp64 for fp64 parameters) after each step taken, and copies buffers
/// (running statistics).
class Ema final : public Stateful {
 public:
  using Buffers = std::vector<std::pair<std::string, at::Tensor>>;

  /// Starts at the values of `parameters`, the set that the optimizer updates. `model` has the tensors that EmaSwap fills, under the same
  /// names; by default these are the complete parameters. Pass `model` if it computes with low-precision copies of fp32 masters, or if its
  /// parameters are sharded: EmaSwap then fills its slices. `buffers` are shared with the model.
  explicit Ema(const ParameterSet& parameters, EmaOptions options = {}, Buffers buffers = {}, ParameterSet model = {});

  /// Updates the averages. If `decision.found_inf` is not 0, averages and counter stay bit-identical; an accelerator decides this without a
  /// host read. Error(Usage) unless `parameters` has the names and order of the constructor's set.
  void update(const ParameterSet& parameters, const StepDecision& decision = {});

  /// Replaces the set of parameters. Parameters with the name and slice of a previous one keep its average; others start at their values.
  /// Error(Usage) as in the constructor, without a change.
  void set_parameters(const ParameterSet& parameters);

  /// Number of updates taken. Reads the device.
  int64_t updates() const;
  /// The averages in fp32 or fp64, with the order, names and slices of the parameters.
  const ParameterSet& averages() const { return averages_; }

  /// Returns the tensors "average/<parameter>" and "buffer/<buffer>", and the value "updates".
  State state() const override;
  /// Restores the averages; slices take their part of complete averages. Error(Checkpoint), without a change, for missing, unknown or
  /// misshapen tensors.
  void load_state(const State& state) override;

 private:
  friend class EmaSwap;
  ParameterSet averages_of(const ParameterSet& parameters) const;
  bool fills_slices() const;
  void update_gated(const std::vector<at::Tensor>& sources, const at::Tensor& skip);

  EmaOptions options_;
  ParameterSet averages_;
  ParameterSet model_;
  Buffers buffers_;            // buffers of the model
  Buffers buffer_copies_;      // copies of the buffers at the last update
  int64_t updates_ = 0;        // number of updates that the host has counted
  at::Tensor device_updates_;  // fp32 scalar: additional updates counted on the device; undefined until the first one
};

/// In its scope, the model has the averaged weights and their buffers. The destructor restores the previous values bit for bit.
class EmaSwap {
 public:
  /// Fills the tensors of a model from averages: tensor i from average i.
  using Fill = std::function<void(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& model)>;
  /// `fill` is required if the averages are slices of complete model tensors, whose other slices are on other ranks. By default, averages
  /// are copied.
  explicit EmaSwap(Ema& ema, const Fill& fill = {});
  ~EmaSwap();
  EmaSwap(const EmaSwap&) = delete;
  EmaSwap& operator=(const EmaSwap&) = delete;

 private:
  std::vector<at::Tensor> targets() const;

  Ema& ema_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> buffers_;
};

namespace detail {
/// Computes target += weight * (source - target) unless found_inf is 1, without a host read. All targets and sources have one dtype, fp32
/// or fp64; all tensors are on one device.
void lerp_unless(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources, const at::Tensor& weight,
                 const at::Tensor& found_inf);
}  // namespace detail

}  // namespace npu_train
