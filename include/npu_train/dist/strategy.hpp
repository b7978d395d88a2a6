/// Everything that several processes change in a training. The step calls a Strategy and never asks how many processes there are.
///
///   broadcast(tensors)           weights and buffers of the main rank, before training begins
///   setup(parameters)            before the optimizer is made: what this rank updates
///   begin_window(micro_batches)  before the first forward
///   begin_forward(true)          before the forward of each micro-batch
///   backward(loss, last)         for each micro-batch, each loss already times its weight / R
///   finish_gradients(weight)     gradients are summed over ranks; returns W
///   agree(step)                  the one agreement of a step, after gradients are unscaled and checked: found_inf, squared norm, sums;
///                                decisions travel with it
///   finish_step()                parameters that other ranks updated arrive
///
/// What a loop must decide alike on every rank is either computed from numbers that are the same on each, or asked by sums(), any(),
/// of_main(), from_main() and decide(): docs/rooms/train.md lists each decision.
///
/// R is the weight of a full window over all ranks and W that of the current one. Every rank makes the same calls in the same order. An
/// exception from a call that waits for other ranks is Error(Peer).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/dist/compression.hpp"
#include "npu_train/dist/parameter_unit.hpp"
#include "npu_train/dist/reduction_times.hpp"

namespace npu_train {

/// What the host knows about a window: of one rank, or summed over ranks.
struct WindowWeight {
  double loss = 0;           ///< what the mean losses are weighted by: the sum of StepOutput::weight
  double samples = 0;        ///< number of samples
  double micro_batches = 0;  ///< number of micro-batches
};

/// What ranks agree on in a step. Each gives its own values; agree() replaces them in place. All tensors are on the device.
struct StepAgreement {
  at::Tensor found_inf;  ///< fp32 scalar, 0 or 1; becomes the largest of all ranks. Undefined in a precision that skips no steps.
  at::Tensor squares;    ///< SquaredNorm::parts of the gradients that this rank updates by; become those of all. Undefined if not needed.
  at::Tensor sums;       ///< fp32 [n], loss and metrics over the rank's samples; become the sums over all ranks
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// For the distribution of data, seeds and reports. The step does not ask.
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  /// Whether sums over ranks are added in the order of ranks, so that a step has the bits of one process.
  virtual bool adds_in_order() const = 0;
  /// The rank that writes files and prints.
  bool is_main() const { return rank() == 0; }
  /// The number of this rank's k-th micro-batch of a window among those of all ranks, both from 0. Random numbers are keyed by it: one
  /// process that accumulates the micro-batches in this order draws the same.
  int64_t micro_batch_number(int64_t k) const { return k * world_size() + rank(); }

  /// Takes the parameters to train, as the Precision prepared them, and returns what the optimizer of this rank updates: all of them, or,
  /// if shards(), a slice of each (Parameter::slice), which may be empty. To be called before the optimizer is made, and again when other
  /// parameters are trained.
  virtual ParameterSet setup(const ParameterSet& trained) = 0;
  /// Whether each rank updates a part of the parameters of its own.
  virtual bool shards() const { return false; }
  /// Whether that includes the parameters themselves: then a slice has its own memory, and the parameter has memory during passes only.
  virtual bool shards_parameters() const { return false; }
  /// Whether this rank writes its slices into checkpoints: not where another one, with the same slices, does.
  virtual bool writes_slices() const { return true; }
  /// Before setup(): which parameters are brought together where they are in shards.
  virtual void set_units(std::vector<ParameterUnit> /*units*/) {}
  /// forward(x) with the parameters of a unit.
  virtual at::Tensor run_unit(size_t /*unit*/, const UnitForward& forward, const at::Tensor& x) { return forward(x); }
  /// Before each forward pass, of a window or without gradients; there, also when this rank has none left, with `has_batch` false: other
  /// ranks may need it until they have none either. Returns `has_batch`. Every rank makes the call where parameters are in shards.
  virtual bool begin_forward(bool has_batch) { return has_batch; }
  /// From tensors of what setup() returned, in its order, to tensors of the complete parameters: `whole[i]` gets, in its own dtype, what
  /// all ranks have in their `slices[i]`. One that is undefined is not needed on this rank.
  virtual void gather_slices(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole);

  /// After the parameters that setup() was given were loaded, from a checkpoint for example: copies of them follow.
  virtual void parameters_loaded() {}

  /// Whether a checkpoint needs state of the strategy: errors of compressed gradients, which differ by rank.
  virtual bool carries_state() const { return false; }
  virtual CarriedState carried() const { return {}; }
  /// Continues with a state that any number of ranks saved; from one without it (an empty State), as at the start. Slices are those that
  /// carried() has, or complete tensors. Not in the middle of a step.
  virtual void load_carried(const State& saved);
  /// What the losses of the window that begins are multiplied by, for a strategy that carries_state().
  virtual void set_gradient_scale(double /*scale*/) {}
  /// Whether each rank has a part of a checkpoint to write.
  bool writes_parts() const { return shards() || carries_state(); }

  /// For each of the numbers that the host of this rank gives, its sum over ranks: added in fp64 in the order of ranks, so the same bits on
  /// each. Waits for the other ranks.
  virtual std::vector<double> sums(std::vector<double> own) = 0;
  double sum(double own) { return sums({own})[0]; }
  /// The elementwise sum over ranks, in place. Of integers, so of SquaredNorm::parts, exact in any order; of floating point, equal on every
  /// rank. With one process nothing.
  virtual void add_over_ranks(at::Tensor& /*own*/) {}
  /// Whether `own` is true on at least one rank.
  bool any(bool own) { return sum(own ? 1 : 0) > 0; }
  /// The `own` of the main rank.
  bool of_main(bool own) { return any(is_main() && own); }
  /// The text that the main rank gives; what other ranks give is ignored. Returns after the main rank has called it.
  virtual std::string from_main(std::string own) = 0;

  /// Calls `work` on the main rank, and then on the others. They wait without a limit of time, as long as the main rank is alive; if its
  /// `work` throws, they get Error(Peer). For what would disturb itself if all did it at once, such as a download.
  virtual void main_first(const std::function<void()>& work) = 0;

  /// Each tensor gets the content that it has on the main rank.
  virtual void broadcast(const std::vector<at::Tensor>& tensors) = 0;
  /// The text of each rank, in the order of ranks.
  virtual std::vector<std::string> gather(const std::string& own) = 0;
  /// `own` [n] of each rank, as [ranks, n], as ProcessGroup::gather() brings it.
  virtual at::Tensor gather(const at::Tensor& own) = 0;

  /// `micro_batches`: of this rank in the window that begins, 0 or more.
  virtual void begin_window(int64_t micro_batches) = 0;
  /// Adds to the gradients. `last`: of the last micro-batch of the window, so gradients may be reduced while it runs.
  virtual void backward(const at::Tensor& loss, bool last) = 0;
  /// After the backward pass of a micro-batch, and once for each that other ranks have and this one does not, in a window whose passes wait
  /// for other ranks themselves (SyncBatchNorm): what is reduced after each micro-batch has been reduced on every rank before the next
  /// pass. In another window there is no such call.
  virtual void end_micro_batch() {}
  /// After the last backward, or without one on a rank that has no batch: the gradients of what setup() returned are the sums over ranks.
  /// Returns the window's weight over all ranks, which travels with the gradients because unscaling needs
  /// it.
  virtual WindowWeight finish_gradients(const WindowWeight& own) = 0;
  /// When the gradients of the last window travelled; without buckets where none do.
  virtual ReductionTimes reduction_times() const { return {}; }
  /// The only agreement of a step, in addition to the reduction of gradients.
  virtual void agree(StepAgreement& step) = 0;
  /// After the optimizer, also after a skipped step: every rank has all parameters.
  virtual void finish_step() = 0;

  /// For decisions between steps that must be the same on every rank (to stop, for example): takes the bits that this rank sets and returns
  /// those that any rank has set. Does not wait: with several ranks the bits travel with the next agree(), so the result may be one
  /// step late. decide(0) takes back bits that have not travelled yet.
  virtual unsigned decide(unsigned wanted) = 0;
  /// Returns when every rank has called it.
  virtual void barrier() = 0;
  /// An error ends the training of this rank: others that wait for it get Error(Peer).
  virtual void abandon() noexcept = 0;

  /// Whether forward and backward of a window may be captured as a graph of the device: nothing in them waits for other ranks.
  virtual bool capturable() const = 0;
};

/// One process with one device: every sum is the rank's own.
class SingleDeviceStrategy : public Strategy {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  bool adds_in_order() const override { return true; }
  ParameterSet setup(const ParameterSet& trained) override { return trained; }
  std::vector<double> sums(std::vector<double> own) override { return own; }
  std::string from_main(std::string own) override { return own; }
  void main_first(const std::function<void()>& work) override { work(); }
  void broadcast(const std::vector<at::Tensor>& /*tensors*/) override {}
  std::vector<std::string> gather(const std::string& own) override { return {own}; }
  at::Tensor gather(const at::Tensor& own) override { return own.unsqueeze(0); }
  void begin_window(int64_t /*micro_batches*/) override {}
  void backward(const at::Tensor& loss, bool last) override;
  WindowWeight finish_gradients(const WindowWeight& own) override { return own; }
  void agree(StepAgreement& /*step*/) override {}
  void finish_step() override {}
  unsigned decide(unsigned wanted) override { return wanted; }
  void barrier() override {}
  void abandon() noexcept override {}
  bool capturable() const override { return true; }
};

}  // namespace npu_train
