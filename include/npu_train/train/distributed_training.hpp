/// Support for your own training loop over several processes. It does what a Trainer does: equal initial weights, a comparison of options,
/// agreement on overflows and norms, and checkpoints that all ranks write.
///
///   const auto group = npu_train::ProcessGroup::from_environment();
///   npu_train::DistributedTraining training(
///       *model, group, [](const auto& parameters) { return std::make_unique<npu_train::AdamW>(parameters, npu_train::AdamWOptions{}); },
///       {.strategy = "zero2", .clip_norm = 1, .loss_scale = npu_train::LossScaleOptions{}});
///   for (...) {
///     training.begin_window(1);
///     {
///       npu_train::Autocast autocast(device, torch::kHalf);
///       loss = loss_fn(model->forward(x), y) / group->size();
///     }
///     training.backward(loss);
///     training.step();  // false: an overflow on some rank, and no rank has stepped
///   }
///   training.save("checkpoints/last");
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/dist/options.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/optim/optimizer.hpp"
#include "npu_train/precision/loss_scale.hpp"

namespace torch::nn {
class Module;
}

namespace npu_train {

struct DistributedTrainingOptions {
  std::string strategy = "ddp";                  ///< ddp | zero1 | zero2 | zero3
  DistOptions dist{};                            ///< how gradients are reduced
  double clip_norm = 0;                          ///< maximum norm of all gradients together; 0: no clipping
  std::optional<LossScaleOptions> loss_scale{};  ///< loss scaling for fp16 under Autocast; nullopt: losses are not scaled
  std::vector<ParameterUnit> units{};            ///< units for zero3, in the order in which a forward pass runs them: see run()
};

class DistributedTraining {
 public:
  /// Creates the optimizer for the parameters that this rank updates: all trained ones or, if they are sharded, a slice of each.
  using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(const ParameterSet& updated)>;

  /// Sends the parameters and buffers of rank 0 to all ranks; `model` must already be on its device. Error(Usage) names the rank whose
  /// options differ, and the option; Error(Peer) names the rank whose parameters have other names or shapes. Error(Usage) if the parameters
  /// are sharded and the optimizer needs complete ones.
  DistributedTraining(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group, const MakeOptimizer& make_optimizer,
                      DistributedTrainingOptions options = {});
  ~DistributedTraining();
  DistributedTraining(const DistributedTraining&) = delete;
  DistributedTraining& operator=(const DistributedTraining&) = delete;

  /// Begins a step, before its first forward pass. `micro_batches`: number of backward passes on this rank; 0 for a rank that has no batch.
  void begin_window(int64_t micro_batches = 1);
  /// Zero3 only: call begin_forward() before each forward pass of a window, and run() to compute forward(x) for the unit with this index.
  /// An access to a parameter outside of its unit is an error of libtorch that names the parameter and the unit.
  void begin_forward();
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x);
  /// Adds the gradients of `loss` times the loss scale. Losses are summed over passes and ranks, so divide each loss by the number of
  /// passes times the number of ranks.
  void backward(const at::Tensor& loss);
  /// Sums the gradients over ranks, unscales and clips them, and updates the parameters unless a gradient of any rank is not finite. Then
  /// zeroes the gradients. Returns false if the step was skipped.
  bool step();

  /// Sums numbers, such as losses, over the ranks, in rank order.
  std::vector<double> sums(const std::vector<double>& own);
  /// Number of steps taken, including those before load().
  int64_t global_step() const;
  double loss_scale() const;  ///< 1 without loss scaling
  Optimizer& optimizer();
  Strategy& strategy();

  /// Writes parameters, buffers of rank 0, optimizer state, loss scale and random number generators as the checkpoint `dir`, which appears
  /// complete or not at all. Each rank writes its own shards. load() continues from it, with any strategy and number of ranks. Every rank
  /// must make both calls, between two steps. Error(Checkpoint) if a file cannot be written or read, or does not fit the training.
  void save(const std::string& dir);
  void load(const std::string& dir);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
