// What a Trainer does differently as one of several processes.
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

// The processes of a training.
class Ranks {
 public:
  // The processes of `parts`, or else of the launch that this process belongs to. Waits for the other ranks, until `stopped` is true.
  Ranks(const RunConfig& config, const Device& device, const Parts& parts, std::function<bool()> stopped);

  // With trainer.strategy=auto one that divides nothing, until choose().
  const std::shared_ptr<Strategy>& strategy() const { return strategy_; }
  // Before Strategy::set_units() and setup(): with trainer.strategy=auto the least division of the training of `all` parameters that fits,
  // on all ranks alike. `has_blocks`: the model declares blocks. Reports the strategy.
  void choose(const RunConfig& config, const ParameterSet& all, bool has_blocks, const Parts& parts);
  // The number of ranks of the first start, by which the global batch and learning rates are: a multiple of those that are left after a
  // restart without some of them.
  int first_number() const { return first_number_; }
  // Whether they do, or choose() may decide so.
  bool may_shard_parameters() const { return is_open_ || strategy_->shards_parameters(); }

 private:
  void divide(const RunConfig& config, const ParameterSet& all, bool has_blocks, const Parts& parts);
  void report(const DistOptions& dist) const;
  void set_strategy(std::shared_ptr<Strategy> strategy);

  Device device_;
  bool offloads_;                        // the optimizer computes on the host, and not on the device
  std::shared_ptr<ProcessGroup> group_;  // none: one process
  std::string starter_;
  int first_number_ = 1;
  Sharding sharding_ = Sharding::None;
  bool is_open_ = false;  // choose() decides
  std::shared_ptr<Strategy> strategy_;
};

// Error(Usage) that names the first rank with another version of the library or another configuration, and the value that differs.
void check_equal_on_ranks(Strategy& strategy, ConfigNode resolved);

// Parameters and buffers.
std::vector<at::Tensor> weights_of(Task& task);

// The factor by which trainer.lr_scaling multiplies the learning rates of the schedule for a number of ranks.
double lr_scale_of_ranks(const Strategy& strategy, int ranks, const std::string& lr_scaling);

// Micro-batches of a step on each rank, of which `accumulated` are requested with `first_number` ranks.
int64_t micro_batches_of_rank(const Strategy& strategy, int first_number, int64_t accumulated);

// `num_workers: auto` becomes the share of this rank where several ranks share the host.
void share_workers(DataOptions& data);

// CPU threads for trainer.threads: those of the configuration; else, if several ranks share the host and OMP_NUM_THREADS is not set, the
// share of this rank; 0: what libtorch takes.
int threads_of_rank(const RunConfig& config);

}  // namespace npu_train
