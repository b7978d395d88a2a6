/// Batch normalisation by the batches of several processes: what torch.nn.SyncBatchNorm does, for the batch_norm of any module.
///
///   auto gather = [group](const std::vector<double>& own) { return group->gather("batch_norm", own); };  // a ProcessGroup
///   const npu_train::SyncBatchNorm synced(gather);
///   loss = loss_fn(model->forward(x), y);  // the backward may run after the scope has ended
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace npu_train {

/// While it lives, each batch_norm of this thread that computes statistics (training mode) uses those of the samples of all ranks, and
/// moves its running statistics by them. Losses are as with data parallel training: the gradients of all ranks are those of the sum of
/// their losses. Scopes nest; the innermost one holds. checkpoint() repeats its function under the scope of its first call.
///
/// Every rank runs the same layers in the same order, also in the backward. Batches may have different sizes. The sums are added in fp64 in
/// the order of ranks: all ranks have equal bits, but not those of one process with one large batch. Not for instance_norm, and not for
/// code that calls native_batch_norm or cudnn_batch_norm itself.
class SyncBatchNorm {
 public:
  /// Gives numbers to the other ranks, and returns those of every rank, in the order of ranks. Empty: that rank has no batch in this call.
  /// Called in the forward pass, with 1 + 2C numbers for C channels, and in the backward pass, with 2C.
  using Gather = std::function<std::vector<std::vector<double>>(const std::vector<double>& own)>;

  explicit SyncBatchNorm(Gather gather);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  /// What a thread normalises by, to do the same later or in another thread.
  class State {
   public:
    /// As it is now.
    State();
    class Scope;

   private:
    std::shared_ptr<const Gather> gather_;
  };

 private:
  class Mode;
  std::unique_ptr<Mode> mode_;
};

/// A SyncBatchNorm with the ranks of `state`, if it has any.
class SyncBatchNorm::State::Scope {
 public:
  explicit Scope(const State& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::unique_ptr<SyncBatchNorm> synced_;
};

}  // namespace npu_train
