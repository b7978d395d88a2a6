// Running statistics of normalisation layers, which every rank moves by the batches of all ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/nn/norm_moves.hpp"
#include "npu_train/train/compares_ranks.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// With one process layers move their own statistics, and this does nothing. With several that add in the order of ranks, each collects the
// moves of its micro-batches. apply() then moves the statistics by those of all ranks, micro-batch by micro-batch in the order of one
// process that accumulates them. Counters of batches count those of all ranks. The bits are those of one process where npu_train's own
// kernels move the statistics; where libtorch's do, the result alone is known, and what it added is computed from that.
//
// `synced`: layers normalise by the batches of all ranks (SyncBatchNorm), so each round of micro-batches is one move, the same on every
// rank that has a batch. A task that compares samples across ranks (ComparesRanks) reaches them in its forward in the same way.
class RunningStatistics {
 public:
  RunningStatistics(Task& task, Strategy& strategy, bool synced)
      : task_(task),
        strategy_(strategy),
        synced_(synced && strategy.world_size() > 1),
        compares_(dynamic_cast<ComparesRanks*>(&task) != nullptr && strategy.world_size() > 1) {
    check(!waits() || !strategy.shards_parameters(), ErrorKind::Usage, "trainer.strategy",
          "sync_batchnorm, and a task that compares samples across ranks, need complete parameters; allowed with them: ddp, zero1, zero2");
  }

  // `micro_batches`: of this rank.
  void begin_window(int64_t micro_batches);
  // Calls `forward` for one micro-batch.
  void collect(const std::function<void()>& forward);
  // Where a forward waits for other ranks: how many micro-batches the rank has that has most; else those of this one.
  int64_t rounds() const { return rounds_; }
  // There, between the passes of each: whether this rank computes a backward pass too.
  void begin_backward(bool computes);
  // There, after the backward pass of each, or in the place of one that this rank does not have: answers those that compute, until the
  // passes of every rank are over.
  void end_micro_batch();
  // After the reduction of gradients: then every rank has computed all its passes, in which it may wait for this one (zero3). Waits for the
  // other ranks.
  void apply();
  // Whether a forward waits for the other ranks.
  bool waits() const { return synced_ || compares_; }

 private:
  std::vector<std::vector<double>> gather(const std::vector<double>& own) const;
  at::Tensor gather_rows(const at::Tensor& own) const;
  ptrdiff_t index_of(const at::Tensor& running) const;
  std::vector<double> own_moves() const;
  void go_back() const;

  Task& task_;
  Strategy& strategy_;
  bool synced_, compares_;
  int64_t rounds_ = 0, complete_rounds_ = 0, round_ = 0;  // `complete`: every rank has a micro-batch
  bool all_compute_ = false;                              // every rank computes the present pass: numbers may travel between devices
  std::vector<NamedTensor> buffers_;                      // none if there is nothing to do
  std::vector<int64_t> counters_;                         // of integer buffers, at the beginning of the window
  std::vector<std::vector<NormMove>> micro_batches_;      // moves of `buffers_` alone: what the task does not list, each rank keeps its own
};

}  // namespace npu_train::detail
