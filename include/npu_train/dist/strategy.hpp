/// Interface for everything in a step that differs between one process and several. The step calls a Strategy and never asks how many
/// processes there are.
///
///   broadcast(tensors)           weights and buffers of the main rank, before training begins
///   setup(parameters)            before the optimizer is made: returns the parameters that this rank updates
///   begin_window(micro_batches)  before the first forward
///   begin_forward(true)          before the forward of each micro-batch
///   backward(loss, last)         for each micro-batch; each loss is already multiplied by its weight / R
///   finish_gradients(weight)     sums the gradients over ranks; returns W
///   agree(step)                  the one agreement of a step, after gradients are unscaled and checked: found_inf, squared norm, sums;
///                                includes the bits of decide()
///   finish_step()                distributes the parameters that each rank has updated
///
/// R is the weight of a full window over all ranks, W the weight of the current window. Every rank makes the same calls in the same order.
/// An exception from a call that waits for other ranks is Error(Peer).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/options.hpp"
#include "npu_train/dist/ranks.hpp"
#include "npu_train/dist/reduction_times.hpp"

namespace npu_train {

// Units of sharded parameters: parts of a model whose parameters are complete only while they are needed (ZeRO-3: Rajbhandari et al. 2020,
// arXiv:1910.02054; fully sharded data parallel: Zhao et al. 2023, arXiv:2304.11277).

/// Parameters that are gathered and released together. Parameters in no unit are complete from a window's first forward pass to its end.
struct ParameterUnit {
  std::string name;                       ///< for messages: "blocks.3"
  std::vector<std::string> parameters{};  ///< names; parameters that are not trained stay complete on every rank
};

/// The computation of a unit.
using UnitForward = std::function<at::Tensor(const at::Tensor&)>;

// The differences between one and several processes in a step.

/// Weight of a window on one rank, or summed over ranks. The numbers are on the host.
struct WindowWeight {
  double loss = 0;  ///< sum of StepOutput::weight, by which mean losses are weighted
  double samples = 0;
  double micro_batches = 0;
};

/// Values on which ranks agree in a step. Each rank gives its own values; agree() replaces them in place. All tensors are on the device.
struct StepAgreement {
  at::Tensor found_inf;  ///< fp32 scalar, 0 or 1; becomes the maximum over ranks. Undefined in a precision that skips no steps.
  at::Tensor squares;    ///< SquaredNorm::parts of this rank's gradients; become those of all gradients. Undefined if not needed.
  at::Tensor sums;       ///< fp32 [n], loss and metrics over this rank's samples; become the sums over ranks
};

/// The errors of compressed gradients, which differ by rank and belong in checkpoints.
class ErrorFeedback {
 public:
  virtual ~ErrorFeedback() = default;

  virtual CompressionState state() const = 0;
  /// Loads a state, which any number of ranks may have saved; an empty State resets the errors. A divided tensor in `saved` is this rank's
  /// slice, as in state(), or complete. Not allowed in the middle of a step.
  virtual void load(const State& saved) = 0;
  /// Sets the loss scale of the window that begins.
  virtual void set_gradient_scale(double scale) = 0;
};

/// Parameters that have memory only while their unit runs (ZeRO-3).
class ShardedUnits {
 public:
  virtual ~ShardedUnits() = default;

  /// Sets the units in which parameters are gathered. Call it before Strategy::setup().
  virtual void set(std::vector<ParameterUnit> units) = 0;
  /// Runs forward(x) with the parameters of a unit.
  virtual at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x) = 0;
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// Returns the ranks, which exchange numbers, texts and decisions between steps.
  virtual Ranks& ranks() const = 0;
  /// Returns which state the ranks divide: each rank updates and stores only its part.
  virtual Sharding sharding() const { return Sharding::None; }
  /// Returns nullptr if no errors of compressed gradients are carried from step to step.
  virtual ErrorFeedback* error_feedback() { return nullptr; }
  /// Returns nullptr unless sharding() is Sharding::Parameters.
  virtual ShardedUnits* units() { return nullptr; }
  /// Whether sums over ranks are added in rank order, so that a step has the bits of one process.
  virtual bool adds_in_order() const = 0;
  /// Whether forward and backward of a window may be captured as a graph of the device, because they never wait for other ranks.
  virtual bool capturable() const = 0;

  /// Takes the parameters to train, as the Precision prepared them, and returns those that this rank's optimizer updates: all of them or,
  /// if shards(), a slice of each (Parameter::slice), which may be empty. Call it before the optimizer is made, and again when other
  /// parameters are trained.
  virtual ParameterSet setup(const ParameterSet& trained) = 0;
  /// Replaces the content of each tensor by its content on the main rank.
  virtual void broadcast(const std::vector<at::Tensor>& tensors) = 0;
  /// Updates the copies, if any, of the parameters that were given to setup(). Call it after the parameters were loaded, from a checkpoint
  /// for example.
  virtual void parameters_loaded() {}
  /// Gathers complete tensors from slices: `slices[i]` belongs to the i-th parameter that setup() returned, and `whole[i]` gets, in its own
  /// dtype, the content of `slices[i]` from all ranks. An undefined `whole[i]` is not needed on this rank.
  virtual void gather_slices(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole);
  /// Whether this rank writes its slices into checkpoints; false if another rank writes the same slices.
  virtual bool writes_slices() const { return true; }

  /// Begins a window. `micro_batches`: number of micro-batches on this rank, 0 or more.
  virtual void begin_window(int64_t micro_batches) = 0;
  /// Begins a forward pass, and returns `has_batch`. If parameters are sharded, every rank makes the call. Outside of windows, a rank that
  /// has no batch left calls it with `has_batch` false: it takes part in the passes of other ranks, until no rank has a batch left.
  virtual bool begin_forward(bool has_batch) { return has_batch; }
  /// Runs the backward pass, which adds to the gradients. `last`: the last one of the window, during which gradients may be reduced.
  virtual void backward(const at::Tensor& loss, bool last) = 0;
  /// Ends a micro-batch in a window whose passes themselves wait for other ranks (SyncBatchNorm). It is called after the backward pass, and
  /// once for each micro-batch that other ranks have and this one does not. Afterwards, gradients that are reduced per micro-batch are sums
  /// on every rank. It is not called in other windows.
  virtual void end_micro_batch() {}
  /// Finishes the reduction after the last backward pass, or without one on a rank that has no batch: the gradients of the parameters that
  /// setup() returned become sums over ranks. Returns the window's weight over all ranks. The weight is sent with the gradients, because
  /// unscaling needs it.
  virtual WindowWeight finish_gradients(const WindowWeight& own) = 0;
  /// Returns the timing of the last window's gradient reduction; without buckets if no gradients are sent.
  virtual ReductionTimes reduction_times() const { return {}; }
  /// Sums `own` elementwise over ranks, in place. Sums of integers, such as SquaredNorm::parts in int64, are exact in any order. Sums of
  /// floating-point numbers are equal on every rank.
  virtual void add_over_ranks(at::Tensor& /*own*/) {}
  /// Agrees with all ranks on the values of a step, in place. Apart from the reduction of gradients, it is the only agreement of a step.
  virtual void agree(StepAgreement& step) = 0;
  /// Ends a step, after the optimizer's update or after a skipped update: every rank gets all parameters, unless they are sharded.
  virtual void finish_step() = 0;
  /// Makes decisions between steps that must be the same on every rank, such as to stop: sets the bits of this rank, and returns the bits
  /// that any rank has set. Does not wait: with several ranks, agree() sends the bits, so the result may be one step late. decide(0)
  /// withdraws bits that have not been sent yet.
  virtual unsigned decide(unsigned wanted) = 0;

  /// Whether each rank updates only its part of the parameters.
  bool shards() const { return sharding() != Sharding::None; }
  /// True for ZeRO-3: slices have their own memory, and complete parameters have memory only during passes.
  bool shards_parameters() const { return sharding() == Sharding::Parameters; }
  /// Whether each rank writes a part of a checkpoint.
  bool writes_parts() { return shards() || error_feedback() != nullptr; }
};

/// One process with one device: every sum is the rank's own.
class SingleDeviceStrategy : public Strategy {
 public:
  Ranks& ranks() const override { return ranks_; }
  bool adds_in_order() const override { return true; }
  bool capturable() const override { return true; }
  ParameterSet setup(const ParameterSet& trained) override { return trained; }
  void broadcast(const std::vector<at::Tensor>& /*tensors*/) override {}
  void begin_window(int64_t /*micro_batches*/) override {}
  void backward(const at::Tensor& loss, bool last) override;
  WindowWeight finish_gradients(const WindowWeight& own) override { return own; }
  void agree(StepAgreement& /*step*/) override {}
  void finish_step() override {}
  unsigned decide(unsigned wanted) override { return wanted; }

 private:
  mutable Ranks ranks_;
};

}  // namespace npu_train
