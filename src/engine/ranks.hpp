// What a Trainer does differently as one of several processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "npu_train/dist/strategy.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/engine/run_config.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train {

// The strategy for the processes of `parts`, or else of the launch that this process belongs to. Waits for the other ranks.
std::shared_ptr<Strategy> make_strategy(const RunConfig& config, const Device& device, const Parts& parts);

// Error(Usage) that names the first rank with another version of the library or another configuration, and the value that differs.
void check_equal_on_ranks(Strategy& strategy, ConfigNode resolved);

// Parameters and buffers.
std::vector<at::Tensor> weights_of(Task& task);

// By which trainer.lr_scaling multiplies the learning rates of the schedule.
double lr_scale_of_ranks(const Strategy& strategy, const std::string& lr_scaling);

// `num_workers: auto` becomes the share of this rank where several ranks share the host.
void share_workers(DataOptions& data);

// CPU threads for trainer.threads: those of the configuration; else, if several ranks share the host and OMP_NUM_THREADS is not set, the
// share of this rank; 0: what libtorch takes.
int threads_of_rank(const RunConfig& config);

}  // namespace npu_train
