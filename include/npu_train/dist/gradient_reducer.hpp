/// Sums the gradients of several processes, while the backward pass runs: what DistributedDataParallel of PyTorch does, for C++.
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
/// Gradients are copied into flat buffers (buckets) by a hook of each parameter; a complete bucket is sent at once, always in the same
/// order of buckets. Sums are added in the order of ranks, so they have the bits of one process that accumulates the micro-batches of all
/// ranks one after the other, whatever the number of ranks and the size of buckets (with `reduction: ordered`).
///
/// With shards (ZeRO, see Sharding) each rank gets the sums of its part alone, and updates that:
///
///   npu_train::GradientReducer reducer(parameters, group, {}, npu_train::Sharding::Gradients);
///   npu_train::AdamW optimizer(reducer.own(), {.lr = 1e-3});  // slices of the parameters, with state of their size
///   for (...) {
///     ...
///     reducer.finish();
///     npu_train::clip_grad_norm_(reducer.own(), 1.0, 2, [&](at::Tensor& squares) { reducer.add_over_ranks(squares); });
///     optimizer.step();
///     reducer.gather_parameters();  // every rank has all of them again
///   }
///
/// With Sharding::Parameters a rank has all of a parameter only while it is needed. A model names the units that are brought together, and
/// runs them by run():
///
///   const std::vector<npu_train::ParameterUnit> units{{"0", {"0.weight"}}, {"1", {"1.weight"}}};
///   npu_train::GradientReducer reducer(parameters, group, {}, npu_train::Sharding::Parameters, units);
///   for (...) {
///     reducer.begin_forward();
///     for (size_t i = 0; i < layers.size(); ++i) x = reducer.run(i, [&](const at::Tensor& in) { return layers[i]->forward(in); }, x);
///     reducer.begin_backward(/*last=*/true);
///     ...
///     reducer.finish();  // from here on parameters have no memory; own() has this rank's slices, in memory of their own
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
#include "npu_train/dist/parameter_unit.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/dist/reduction_times.hpp"

namespace npu_train {

class GradientReducer {
 public:
  /// `parameters` must be equal on all ranks, also their values: Error(Peer) names the rank and the parameter that differ. Error(Usage) for
  /// options that are not valid or not those of rank 0, which it names, or `units` that have a parameter in common. `units`: with
  /// Sharding::Parameters, in the order in which a forward pass runs them. `device`: with Sharding::Parameters, where parameters of the
  /// host move, unit by unit, when they are divided; none: they stay. `equal_values`: they are known to be equal and not compared, which
  /// costs a pass over all of them.
  GradientReducer(const ParameterSet& parameters, std::shared_ptr<ProcessGroup> group, const DistOptions& options = {},
                  Sharding sharding = Sharding::None, const std::vector<ParameterUnit>& units = {},
                  std::optional<c10::Device> device = std::nullopt, bool equal_values = false);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Before the backward passes of a window, with the number of them on this rank; 0: this rank only takes part. Ranks may have different
  /// numbers. Optional where each rank has one, or with `reduce: window`.
  void begin_window(int64_t micro_batches);
  /// With Sharding::Parameters, before each forward pass; parameters in no unit are complete from then on. `backward`: a backward pass
  /// follows it; otherwise outside of windows.
  void begin_forward(bool backward = true);
  /// forward(x) for a unit, by its index, with its parameters. Error(Usage) outside of a pass, and a second time in one.
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x);
  /// What a rank does that has no samples while others have a forward pass outside of a window.
  void idle_forward();
  /// After the last forward pass outside of a window: parameters have no memory again.
  void end_forward();
  /// Every rank gets all parameters, masters too, which stay complete when the reducer is gone. Every rank makes the call.
  void bring_parameters();
  /// Before each backward pass; `last`: of the window. Gradients of the passes before it are kept until then, or sent (`micro_batch`).
  void begin_backward(bool last);
  /// After each backward pass of a window whose passes wait for other ranks by themselves (SyncBatchNorm), and once for each pass that
  /// other ranks have and this one does not. With `reduce: micro_batch` the gradients of the pass are added now, which otherwise the next
  /// begin_backward() waits for, when a rank without a pass may wait for the next forward pass.
  void end_micro_batch();

  /// After the last backward pass: the gradient of each parameter is the sum over all ranks and micro-batches, a view of a bucket that
  /// stays valid until the next window begins. A parameter without a gradient on some ranks gets the sum of the others; one without a
  /// gradient on any rank gets none. Gradients that were not zeroed since the last window are added, once and not for each rank; sparse
  /// ones are Error(Usage). `own`: numbers that travel along; returns their sums, added in the order of ranks.
  std::vector<double> finish(const std::vector<double>& own = {});

  /// Of the last window, after finish().
  const ReductionTimes& times() const;

  /// With a compression that carries errors (Compression::carries_errors()): what the last window did not send is added to the gradients
  /// of the next one, unless its step was not taken. To be called after finish(); without the call the next window begins as after
  /// settle(true).
  void settle(bool taken);
  /// What the losses of this window are multiplied by, such as the scale of a GradScaler: the errors of earlier windows are in proportion
  /// to it. To be called before the first backward pass; 1 until then.
  void set_gradient_scale(double scale);
  /// What compression carries to the next window, for a checkpoint: see Strategy::carried().
  bool carries_errors() const;
  CarriedState carried() const;
  void load_carried(const State& saved);

  /// What the optimizer of this rank updates, in the order of the parameters: they themselves; with shards a slice of each, which may be
  /// empty and shares the parameter's memory. Of masters, and with Sharding::Parameters, a slice has memory of its own and the parameter
  /// none. Slices begin at multiples of 64 elements, so elementwise kernels give the bits that they give for complete parameters. With
  /// shards finish() sets the gradients of the slices; parameters get none.
  const ParameterSet& own() const;
  /// With shards, the number of ranks that divide them (dist.shard_size); ranks that are as many apart have the same slices.
  int shard_size() const;
  /// The elementwise sum over the ranks that divide the shards, in place: a NormReduction, which the norm of gradients and an optimizer
  /// that needs norms (Lamb) must be given if they see slices. Every rank makes the call.
  void add_over_ranks(at::Tensor& own) const;
  /// Every rank gets all parameters from the slices that each has updated; in the place of masters the tensors that the model computes
  /// with, from slices that their rank rounds. With Sharding::Parameters nothing, since passes bring them.
  void gather_parameters();
  /// The same for other tensors: `slices[i]` has the size of the i-th of own(), 1-D, and `whole[i]`, of the sizes of the parameter and of
  /// any dtype, gets what all ranks have of it; where it is undefined, this rank does not need it. Every rank makes the call; `slices` have
  /// one dtype for all parameters of a dtype. Without shards `whole[i]` becomes `slices[i]`.
  void gather(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace npu_train
