/// Sums gradients over several processes while the backward pass runs, as PyTorch's DistributedDataParallel does, for C++.
///
///   auto group = npu_train::ProcessGroup::from_environment();
///   npu_train::GradientReducer reducer(parameters, group);
///   for (...) {
///     optimizer.zero_grad();
///     reducer.begin_backward(/*last=*/true);
///     (loss_fn(model->forward(x), y) / group->size()).backward();
///     reducer.finish();  // every rank has the sums
///     optimizer.step();
///   }
///
/// A hook on each parameter copies its gradient into a flat buffer (a bucket). Buckets are sent in a fixed order, each as soon as it and
/// all buckets before it are complete. With `reduction: ordered`, gradients are added in rank order. The sums then have the bits of one
/// process that accumulates the micro-batches of all ranks one after the other, for any number of ranks and any bucket size.
///
/// With shards (ZeRO, see Sharding) each rank gets only the sums of its part, and updates only that part:
///
///   npu_train::GradientReducer reducer(parameters, group, {}, npu_train::Sharding::Gradients);
///   npu_train::AdamW optimizer(reducer.own(), {.lr = 1e-3});  // updates slices of the parameters, and keeps state only for them
///   for (...) {
///     ...
///     reducer.finish();
///     npu_train::clip_grad_norm_(reducer.own(), 1.0, 2, [&](at::Tensor& squares) { reducer.add_over_ranks(squares); });
///     optimizer.step();
///     reducer.gather_parameters();  // every rank has all parameters again
///   }
///
/// With Sharding::Parameters a rank holds a complete parameter only while it is needed. The program declares the units that are gathered
/// together, and runs each with run():
///
///   const std::vector<npu_train::ParameterUnit> units{{"0", {"0.weight"}}, {"1", {"1.weight"}}};
///   npu_train::GradientReducer reducer(parameters, group, {}, npu_train::Sharding::Parameters, units);
///   for (...) {
///     reducer.begin_forward();
///     for (size_t i = 0; i < layers.size(); ++i) x = reducer.run(i, [&](const at::Tensor& in) { return layers[i]->forward(in); }, x);
///     reducer.begin_backward(/*last=*/true);
///     ...
///     reducer.finish();  // from here on, parameters have no memory; own() has this rank's slices, in memory of their own
///     optimizer.step();
///   }
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/dist/reduction_times.hpp"
#include "npu_train/dist/strategy.hpp"

namespace npu_train {

class GradientReducer {
 public:
  /// `parameters` must be equal on all ranks, including their values: Error(Peer) names the rank and the parameter that differ.
  /// Error(Usage) if options are not valid, if they differ from those of rank 0 (the message names the rank and the option), or if `units`
  /// share a parameter. `units`: for Sharding::Parameters, in the order in which a forward pass runs them. `device`: for
  /// Sharding::Parameters, the device to which host parameters are moved, unit by unit, when they are sharded; without it they stay on the
  /// host. `equal_values`: the values are known to be equal, so they are not compared.
  GradientReducer(const ParameterSet& parameters, std::shared_ptr<ProcessGroup> group, const DistOptions& options = {},
                  Sharding sharding = Sharding::None, const std::vector<ParameterUnit>& units = {},
                  std::optional<c10::Device> device = std::nullopt, bool equal_values = false);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Begins a window with `micro_batches` backward passes on this rank. The number may differ between ranks; a rank with 0 only takes part
  /// in the collectives. The call is optional if every rank has one pass. With `reduce: window` it is needed only if parameters are sharded
  /// and the numbers of passes differ.
  void begin_window(int64_t micro_batches);
  /// Begins a forward pass with Sharding::Parameters; parameters that are in no unit are complete from then on. `backward`: a backward pass
  /// follows. It is false only outside of windows.
  void begin_forward(bool backward = true);
  /// Runs forward(x) with the parameters of the unit `unit`. Error(Usage) outside of a pass, or if the unit already ran in this one.
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x);
  /// Takes part in a forward pass of other ranks outside of a window (in validation, for example), on a rank that has no samples left.
  void idle_forward();
  /// Ends the forward passes outside of a window: parameters have no memory again.
  void end_forward();
  /// Gathers all parameters and masters on every rank; they stay complete after the reducer is destroyed. Every rank must call it.
  void unshard_parameters();
  /// Begins a backward pass; `last`: it is the last one of the window. With `reduce: window`, gradients of earlier passes are kept until
  /// the last pass. With `reduce: micro_batch`, each pass sends its gradients.
  void begin_backward(bool last);
  /// Ends a micro-batch in a window whose passes themselves wait for other ranks (SyncBatchNorm). Call it after each backward pass, and
  /// once for each pass that other ranks have and this one does not. With `reduce: micro_batch` it finishes the sum of the pass
  /// immediately. Without this call, the next begin_backward() would wait for the sum, while a rank without that pass may wait for the next
  /// forward pass.
  void end_micro_batch();

  /// Finishes the reduction after the last backward pass. The gradient of each parameter becomes the sum over all ranks and micro-batches,
  /// a view of a bucket that is valid until the next window begins. If only some ranks have a gradient of a parameter, the sum is over
  /// these ranks; a parameter without a gradient on any rank gets none. Gradients that were not zeroed since the last window are added
  /// once, not once per rank. Error(Usage) for sparse gradients. `own`: numbers that are sent with the gradients; returns their sums, added
  /// in rank order.
  std::vector<double> finish(const std::vector<double>& own = {});

  /// Timing of the last window; valid after finish().
  const ReductionTimes& times() const;

  /// Call it after finish() to report whether the step was taken. Error feedback (Compression::has_error_feedback()) adds the compression
  /// error of the window to the gradients of the next window only if the step was taken. Without this call, the next window begins as after
  /// settle(true).
  void settle(bool taken);
  /// Sets the factor by which the losses of this window are multiplied, such as the scale of a GradScaler. The compression errors of
  /// earlier windows are rescaled to it. Call it before the first backward pass; the default is 1.
  void set_gradient_scale(double scale);
  /// State of the compression for a checkpoint, as in Strategy::error_feedback().
  bool has_error_feedback() const;
  CompressionState compression_state() const;
  void load_compression_state(const State& saved);

  /// Returns the parameters that this rank's optimizer updates, in the order of the parameters: the parameters themselves or, with shards,
  /// a slice of each, which may be empty. A slice shares the parameter's memory. Exceptions are slices of masters, and all slices with
  /// Sharding::Parameters: they have their own memory, and the master or parameter has none. Slices begin at multiples of 64 elements, so
  /// elementwise kernels give the same bits as for complete parameters. With shards, finish() sets the gradients of the slices; parameters
  /// get none.
  const ParameterSet& own() const;
  /// Returns the number of ranks that divide the shards (dist.shard_size). Ranks r and r + shard_size() have the same slices.
  int shard_size() const;
  /// Sums `own` elementwise over the ranks that divide the shards, in place. Use it as the NormReduction of gradient clipping, and of an
  /// optimizer that needs norms (Lamb), if they get slices. Every rank must call it.
  void add_over_ranks(at::Tensor& own) const;
  /// Gathers all parameters on every rank from the slices that the ranks have updated. For a parameter with a master it gathers the tensor
  /// that the model computes with; the owner of a slice rounds the slice before it is sent. No effect with Sharding::Parameters, where each
  /// pass gathers the parameters.
  void gather_parameters();
  /// Gathers other tensors in the same way: `slices[i]` is 1-D with the size of the i-th slice of own(). `whole[i]` has the shape of the
  /// parameter and any dtype, and gets the content from all ranks. If `whole[i]` is undefined, this rank does not need it. `slices` must
  /// have one dtype for all parameters of a dtype. Without shards, copies `slices[i]` to `whole[i]`. Every rank must call it.
  void gather(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
