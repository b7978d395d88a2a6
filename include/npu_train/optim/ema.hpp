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
  double decay = 0.9999;  ///< weight of the old average in each update
  bool warmup = true;     ///< decay of update n is min(decay, (1 + n) / (10 + n)): the first weights are soon forgotten
  static const ConfigTable<EmaOptions>& config_table();
};

/// average = decay * average + (1 - decay) * parameter, in fp32 (of fp64 parameters in fp64), after each step taken. Buffers (running
/// statistics) are copied.
class Ema final : public Stateful {
 public:
  using Buffers = std::vector<std::pair<std::string, at::Tensor>>;

  /// Starts at the values of `parameters` (what the optimizer updates). `model` are the tensors that EmaSwap fills, under the same names:
  /// the same set unless the model has low-precision parameters with fp32 masters, or the set has slices of them. `buffers` are the model's
  /// and are kept by handle. Slices are their own model if `model` has slices too: those of a model whose parameters are in shards.
  explicit Ema(const ParameterSet& parameters, EmaOptions options = {}, Buffers buffers = {}, ParameterSet model = {});

  /// One update. With `gate.found_inf` set, nothing moves and nothing is counted: decided on the device, without a host read on an
  /// accelerator; bit-identical. The parameters must be those of the constructor, by name and order: Error(Usage).
  void update(const ParameterSet& parameters, const StepGate& gate = {});

  /// Another set to average from now on: parameters that it shares with the present one, by name and slice, keep their average, others
  /// begin at their values. Error(Usage) as the constructor; nothing is changed then.
  void set_parameters(const ParameterSet& parameters);

  /// Updates taken. Reads the device.
  int64_t updates() const;
  /// The averages, in fp32 or fp64, in order and under the names of the parameters, and of the same slices.
  const ParameterSet& averages() const { return averages_; }

  /// Tensors "average/<parameter>" and "buffer/<buffer>", and the value "updates".
  State state() const override;
  /// Averages of complete parameters, of which slices take theirs. Error(Checkpoint) for missing, unknown or misshapen tensors; nothing is
  /// changed then.
  void load_state(const State& state) override;

 private:
  friend class EmaSwap;
  ParameterSet averages_of(const ParameterSet& parameters) const;
  bool fills_slices() const;
  void update_gated(const std::vector<at::Tensor>& sources, const at::Tensor& skip);

  EmaOptions options_;
  ParameterSet averages_;
  ParameterSet model_;
  Buffers buffers_;            // the model's
  Buffers buffer_copies_;      // those that go with the averages
  int64_t updates_ = 0;        // those that the host has counted
  at::Tensor device_updates_;  // fp32 scalar, undefined at first: those that the device decided on, in addition
};

/// While it lives, the model has the averaged weights and the buffers that go with them; then its own again, bit for bit.
class EmaSwap {
 public:
  /// Fills the tensors of a model from averages, in matching lists.
  using Fill = std::function<void(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& model)>;
  /// `fill`: where the averages are of slices, of which other ranks have the rest; by default each average is copied.
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
/// target += weight * (source - target) unless found_inf is 1, without a host read; targets and sources of one dtype, fp32 or fp64, all
/// tensors on one device.
void lerp_unless(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources, const at::Tensor& weight,
                 const at::Tensor& found_inf);
}  // namespace detail

}  // namespace npu_train
