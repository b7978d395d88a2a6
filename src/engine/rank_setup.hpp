// The parts of a Trainer that depend on whether it is one of several processes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/device/device.hpp"
#include "npu_train/dist/process_group.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

// The processes of a training, from the view of one rank.
class RankSetup {
 public:
  // Joins the processes that `parts` provides, otherwise those of this process's launch. Waits for the other ranks until `stopped` returns
  // true.
  RankSetup(const RunConfig& config, const Device& device, const Parts& parts, std::function<bool()> stopped);

  // Returns the strategy. With trainer.strategy=auto, it shards nothing until choose() is called.
  const std::shared_ptr<Strategy>& strategy() const { return strategy_; }
  // Returns a strategy of the same ranks for further parameters, after choose().
  std::shared_ptr<Strategy> another(const DistOptions& dist) const;
  // With trainer.strategy=auto, chooses the least sharding with which a training of `all` parameters fits into memory. The choice is the
  // same on all ranks. Call it before Strategy::set_units() and setup(). `most`: the most sharding that model and task allow. Reports the
  // strategy.
  void choose(const RunConfig& config, const ParameterSet& all, Sharding most, const Parts& parts);
  // Returns the number of ranks when the run was first started, which determines the global batch and learning rates. After a restart with
  // fewer ranks, it is a multiple of their number.
  int first_number() const { return first_number_; }
  // Returns whether parameters are sharded, or choose() may decide that.
  bool may_shard_parameters() const { return is_open_ || strategy_->shards_parameters(); }

 private:
  void divide(const RunConfig& config, const ParameterSet& all, Sharding most, const Parts& parts);
  void report(const DistOptions& dist) const;
  void set_strategy(std::shared_ptr<Strategy> strategy);

  Device device_;
  bool offloads_;                        // the optimizer computes on the host instead of the device
  std::shared_ptr<ProcessGroup> group_;  // null: one process
  std::string starter_;
  int first_number_ = 1;
  Sharding sharding_ = Sharding::None;
  bool is_open_ = false;  // choose() has not decided yet
  std::shared_ptr<Strategy> strategy_;
};

// Error(Usage) if ranks differ in the library's version or the configuration; it names the first such rank, and the value that differs.
void check_equal_on_ranks(Ranks& ranks, ConfigNode resolved);

// Returns `parameters`, which are those of the task, and the task's buffers.
std::vector<at::Tensor> weights_of(Task& task, const ParameterSet& parameters);

// Returns the factor on the schedule's learning rates that follows from trainer.lr_scaling and the number of ranks.
double lr_scale_of_ranks(const Ranks& ranks, int first_number, const std::string& lr_scaling);

// Returns the number of micro-batches per step and rank, if `accumulated` are configured for `first_number` ranks.
int64_t micro_batches_of_rank(const Ranks& ranks, int first_number, int64_t accumulated);

// Replaces `num_workers: auto` by this rank's share if several ranks share the host.
void share_workers(DataOptions& data);

// Returns the number of CPU threads: trainer.threads if set; otherwise this rank's share if several ranks share the host and
// OMP_NUM_THREADS is not set; otherwise 0, which means libtorch's default.
int threads_of_rank(const RunConfig& config);

}  // namespace npu_train
