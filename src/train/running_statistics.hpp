// Running statistics of normalisation layers, which every rank updates from the batches of all ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/dist/strategy.hpp"
#include "npu_train/nn/norm_watch.hpp"
#include "npu_train/train/task.hpp"

namespace npu_train::detail {

// With one process, layers update their own statistics, and this class does nothing. With several ranks that add in rank order, each rank
// collects the updates ("moves") of its micro-batches. apply() then applies the moves of all ranks, micro-batch by micro-batch in the order
// of one process that accumulates them. Counters count the batches of all ranks. The bits are those of one process if npu_train's own
// kernels update the statistics. libtorch's kernels return only the result, so the added part is computed from it.
//
// `synced`: layers normalise over the batches of all ranks (SyncBatchNorm), so each round of micro-batches is one move, equal on every rank
// that has a batch. The forward pass of a task that compares samples across ranks (ComparesRanks) exchanges them in the same way.
class RunningStatistics {
 public:
  RunningStatistics(Task& task, Strategy& strategy, bool synced)
      : task_(task),
        strategy_(strategy),
        synced_(synced && strategy.ranks().size() > 1),
        compares_(dynamic_cast<ComparesRanks*>(&task) != nullptr && strategy.ranks().size() > 1) {
    check(!waits() || !strategy.shards_parameters(), ErrorKind::Usage, "trainer.strategy",
          "sync_batchnorm, and a task that compares samples across ranks, need complete parameters; allowed with them: ddp, zero1, zero2");
  }

  // `micro_batches`: number on this rank.
  void begin_window(int64_t micro_batches);
  // Returns the ranks of a micro-batch's context; nullptr unless the task compares samples across them.
  std::shared_ptr<const ForwardContext::Ranks> ranks() const;
  // Calls `forward` for one micro-batch.
  void collect(const std::function<void()>& forward);
  // Returns the largest number of micro-batches on any rank if waits(), otherwise the number on this rank.
  int64_t rounds() const { return rounds_; }
  // Call it between the forward and the backward pass of each micro-batch if waits(). `computes`: this rank runs the backward pass.
  void begin_backward(bool computes);
  // Call it after the backward pass of each micro-batch, or in place of one that this rank does not have, if waits(). Takes part in the
  // exchanges of the ranks that still compute, until the passes of every rank have ended.
  void end_micro_batch();
  // Applies the moves of all ranks; waits for them. Call it after the reduction of gradients, because before that, a pass of another rank
  // may wait for this rank (zero3).
  void apply();
  // Returns whether a forward pass waits for the other ranks.
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
  int64_t rounds_ = 0, complete_rounds_ = 0, round_ = 0;  // complete_rounds_: rounds in which every rank has a micro-batch
  bool all_compute_ = false;                              // every rank computes the current pass, so numbers may be sent between devices
  std::vector<NamedTensor> buffers_;                      // empty if there is nothing to do
  std::vector<int64_t> counters_;                         // values of integer buffers at the start of the window
  std::vector<std::vector<NormMove>> micro_batches_;  // only moves of `buffers_`: statistics that the task does not list stay local to each
                                                      // rank
};

}  // namespace npu_train::detail
