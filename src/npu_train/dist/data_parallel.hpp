/// Data parallelism: each process trains on a part of every global batch; optimizer state, gradients and parameters may be sharded.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/dist/gradient_reducer.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/dist/strategy.hpp"

namespace npu_train {
namespace detail {
class OperatorSequence;
class RankTimes;
}  // namespace detail

/// Without shards, every rank holds all parameters, gradients and optimizer state and computes the same step, as PyTorch's
/// DistributedDataParallel does. With shards (ZeRO), a rank updates its part of the parameters, and gets the rest from the others or does
/// not store it. With `dist.reduction: ordered` a step has the bits of one process that accumulates the micro-batches of all ranks.
/// Functions that reduce gradients or gather parameters throw Error(Usage) before setup().
class DataParallelStrategy final : public Strategy, ErrorFeedback, ShardedUnits {
 public:
  /// `device`: the device of the parameters, which decides `reduction: auto`. With Sharding::Parameters, setup() moves parameters from the
  /// host to `device`, unit by unit. Throws Error(Usage) and Error(Device) as ProcessGroup::transport() does.
  DataParallelStrategy(std::shared_ptr<ProcessGroup> group, const DistOptions& options, const c10::Device& device = c10::kCPU,
                       Sharding sharding = Sharding::None);
  ~DataParallelStrategy() override;

  Ranks& ranks() const override { return *ranks_; }
  Sharding sharding() const override { return sharding_; }
  ErrorFeedback* error_feedback() override { return reducer_ != nullptr && reducer_->has_error_feedback() ? this : nullptr; }
  ShardedUnits* units() override { return shards_parameters() ? this : nullptr; }
  bool adds_in_order() const override { return options_.adds_in_order(); }
  bool capturable() const override { return false; }

  /// Error(Peer) if parameter values differ from rank 0's. They are not compared if broadcast() has sent them before.
  ParameterSet setup(const ParameterSet& trained) override;
  void broadcast(const std::vector<at::Tensor>& tensors) override;
  void gather_slices(const std::vector<at::Tensor>& slices, const std::vector<at::Tensor>& whole) override;
  bool writes_slices() const override { return group_->rank() < shard_size_; }

  bool begin_forward(bool has_batch) override;
  void begin_window(int64_t micro_batches) override;
  void backward(const at::Tensor& loss, bool last) override;
  void end_micro_batch() override { reducer().end_micro_batch(); }
  WindowWeight finish_gradients(const WindowWeight& own) override;
  void add_over_ranks(at::Tensor& own) override { reducer().add_over_ranks(own); }
  ReductionTimes reduction_times() const override { return reducer().times(); }
  /// Also exchanges the compute time of each rank: rank 0 logs a warning if one is much slower than the others.
  void agree(StepAgreement& step) override;
  /// Every `dist.check_every` steps, compares the weights of all ranks: with sharded optimizer state or gradients at the start of the step,
  /// with sharded parameters not at all. Error(CheckFailed) names a rank and the first parameter that differs from rank 0's. Also compares
  /// the operators of forward and backward among ranks with equal numbers of samples, and logs the first difference as a warning, once.
  void finish_step() override;

  unsigned decide(unsigned wanted) override;

  /// Sets the units, as ShardedUnits::set() does. setup() checks the units with every kind of sharding.
  void set(std::vector<ParameterUnit> units) override { units_ = std::move(units); }

 private:
  CompressionState state() const override { return reducer().compression_state(); }
  void load(const State& saved) override;
  void set_gradient_scale(double scale) override { reducer().set_gradient_scale(scale); }
  at::Tensor run(size_t unit, const UnitForward& forward, const at::Tensor& x) override;

  GradientReducer& reducer() const;
  void does(const char* work);  // reports `work` and the step, for the error messages of waiting ranks
  bool is_checked() const { return options_.check_every > 0 && (steps_ + 1) % options_.check_every == 0; }
  void check_weights(int64_t steps);
  void check_operators();

  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<Ranks> ranks_;
  c10::Device device_;
  Sharding sharding_;
  DistOptions options_;
  int shard_size_;
  ParameterSet trained_;
  std::vector<ParameterUnit> units_;
  std::unique_ptr<GradientReducer> reducer_;
  bool sent_ = false;       // broadcast() has made the parameters of all ranks equal
  bool in_window_ = false;  // from begin_window() to finish_gradients()
  std::unique_ptr<detail::RankTimes> times_;
  std::unique_ptr<detail::OperatorSequence> sequence_;  // records the operators of a checked step
  std::string operators_;                               // names of the operators in the step, one per line
  bool operators_differ_ = false;                       // a difference was found, and a warning was logged
  WindowWeight own_weight_;
  int64_t steps_ = 0;
  double window_begin_ = 0, computed_ = 0;  // seconds
  unsigned wanted_ = 0, decided_ = 0;
  bool taken_ = true;  // no rank has found an overflow in the current step
};

}  // namespace npu_train
