/// Averages of the weights of a training, which often validate better than the weights themselves (Polyak averaging): an exponential moving
/// average, or the equal average of weights from the end of the run (stochastic weight averaging, Izmailov et al. 2018).
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

/// Section `average`.
struct AverageOptions {
  bool enabled = false;
  std::string kind = "ema";  ///< ema | swa | checkpoints: which weights are averaged
  double decay = 0.9999;     ///< ema: weight of the previous average in each update
  bool warmup = true;   ///< ema: decay of update n is min(decay, (1 + n) / (10 + n)), so that the first weights soon lose their influence
  double start = 0.75;  ///< swa: number of epochs before the averages; below 1: the share of the run that comes before them
  int64_t every = 0;    ///< swa: steps between updates; 0: one update at the end of each epoch
  double lr = 0;        ///< swa: the learning rate after the start; 0: the rate of lr_scheduler
  int64_t anneal_epochs = 10;     ///< swa: number of epochs in which the rate moves to `lr`
  std::string anneal = "cosine";  ///< swa: cosine | linear: the curve of this move
  int64_t last = 5;               ///< checkpoints: number of newest checkpoints that are averaged at the end of the run
  std::string of{};               ///< in a task with several optimizers, the name of the one whose parameters are averaged
  static const ConfigTable<AverageOptions>& config_table();
  /// Returns how many of `length` epochs or steps come before the averages of kind swa. Only for a `start` below 1.
  int64_t before_averages(int64_t length) const;
};

/// Averages of parameters in fp32 (fp64 for fp64 parameters), and copies of the buffers (running statistics) that belong to them. An update
/// adds the current parameters: average = d * average + (1 - d) * parameter. With kind ema, d is the decay. With the other kinds, d is n /
/// (n + 1) after n updates, so that all updates have the same weight, as in torch.optim.swa_utils.AveragedModel.
class WeightAverage final : public Stateful {
 public:
  using Buffers = std::vector<std::pair<std::string, at::Tensor>>;

  /// Starts at the values of `parameters`, the set that the optimizer updates. `model` has the tensors that AverageSwap fills, under the
  /// same names; by default the complete parameters. Pass `model` if the model computes with low-precision copies of fp32 masters, or if
  /// its parameters are sharded: AverageSwap then fills the model's slices. `buffers` are shared with the model.
  explicit WeightAverage(const ParameterSet& parameters, AverageOptions options = {}, Buffers buffers = {}, ParameterSet model = {});

  /// Updates the averages. If `decision.found_inf` is not 0, averages and counter stay bit-identical; on an accelerator this is decided
  /// without a host read. Error(Usage) unless `parameters` has the names and order of the constructor's set.
  void update(const ParameterSet& parameters, const StepDecision& decision = {});

  /// Replaces the set of parameters. A parameter with the name and slice of a previous one keeps the average of that one; the average of
  /// any other parameter starts at its value. Error(Usage) as in the constructor, without a change.
  void set_parameters(const ParameterSet& parameters);

  /// Forgets all updates. The next update begins a new average; with kinds other than ema, it starts at the parameters of that update.
  void reset();
  /// Copies the model's current buffers.
  void take_buffers();

  /// Number of updates taken. Reads the device.
  int64_t updates() const;
  const AverageOptions& options() const { return options_; }
  /// Whether every step taken updates the averages (kind ema). Averages of other kinds are updated between steps, and at the end of a run.
  bool follows_steps() const { return options_.kind == "ema"; }
  /// The averages in fp32 or fp64, with the order, names and slices of the parameters.
  const ParameterSet& averages() const { return averages_; }

  /// Returns the tensors "average/<parameter>" and "buffer/<buffer>", and the values "updates" and, for kinds other than ema, "kind".
  State state() const override;
  /// Restores the averages. The average of a slice takes its part of a complete saved average. Error(Checkpoint), without a change, for
  /// missing, unknown or misshapen tensors, and for averages of another kind.
  void load_state(const State& state) override;

 private:
  friend class AverageSwap;
  ParameterSet averages_of(const ParameterSet& parameters) const;
  bool fills_slices() const;
  double weight_of(double update) const;
  void update_gated(const std::vector<at::Tensor>& sources, const at::Tensor& skip);

  AverageOptions options_;
  ParameterSet averages_;
  ParameterSet model_;
  Buffers buffers_;            // buffers of the model
  Buffers buffer_copies_;      // copies of the buffers at the last update
  int64_t updates_ = 0;        // updates counted by the host
  at::Tensor device_updates_;  // fp32 scalar: further updates, counted by the device; undefined until the first one
};

/// During its lifetime, the model has the averaged weights and their buffers. The destructor restores the previous values bit for bit.
class AverageSwap {
 public:
  /// Fills `model` from `averages`; tensors with the same index belong together.
  using Fill = std::function<void(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& model)>;
  /// `fill` is required if the averages are slices of complete model tensors, whose other slices are on other ranks. By default averages
  /// are copied.
  explicit AverageSwap(WeightAverage& average, const Fill& fill = {});
  ~AverageSwap();
  AverageSwap(const AverageSwap&) = delete;
  AverageSwap& operator=(const AverageSwap&) = delete;

 private:
  std::vector<at::Tensor> targets() const;

  WeightAverage& average_;
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
